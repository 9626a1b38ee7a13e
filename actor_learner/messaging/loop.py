"""The thread that owns a socket: ZeroMQ's sockets belong to one thread, ours are used from many."""

from __future__ import annotations

import collections
import os
import threading
import time
from collections.abc import Sequence
from typing import Callable, Union

import zmq
from absl import logging

Frame = Union[bytes, memoryview, zmq.Frame]
"""What can be sent; ZeroMQ shares the memory of its own frames, and copies all else."""

_CLOSE_SECONDS = 5.0
_READ_AT_ONCE = 256
"""Messages taken from a socket before whatever else is due gets its turn."""

# Plain integers: combining ZeroMQ's own, which are enumerations, costs more than sending a frame.
_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)


class SocketLoop:
    """Receives in a thread, and sends from it what any thread hands over.

    Args:
      name: Of the thread.
      socket: Bound or connected; the loop owns it from now on.
      on_frames: Called in the thread with each message received.
      on_tick: Called in the thread at least every `tick_seconds`.
      tick_seconds: See there.

    Attributes:
      rest_seconds: How long the thread rests after each round, so that it takes several messages
        at once; any thread may set it. Waking up for each of hundreds costs far more than taking
        it, and a message that comes after a time of silence does not wait.
    """

    def __init__(
        self,
        name: str,
        socket: zmq.Socket,
        *,
        on_frames: Callable[[list[bytes]], None],
        on_tick: Callable[[], None],
        tick_seconds: float,
    ) -> None:
        self._name = name
        self._socket = socket
        self._on_frames = on_frames
        self._on_tick = on_tick
        self._tick_ms = max(1, int(1000 * tick_seconds))
        self.rest_seconds = 0.0
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._lock = threading.Lock()
        self._woken = False
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Has the thread call `function` soon; nothing happens once the loop has ended."""
        self._calls.append(function)
        if threading.current_thread() is not self._thread:  # It looks before it sleeps.
            self._wake()

    def send(self, frames: Sequence[Frame]) -> bool | None:
        """Sends at once, without waiting; only from within the loop's thread.

        Returns:
          Whether it could be sent: False if nobody is connected or the other end takes nothing at
          present, None if the one it is for is gone.
        """
        try:
            for frame in frames[:-1]:
                self._socket.send(frame, _MORE)
            self._socket.send(frames[-1], _LAST)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return None
            raise
        return True

    def close(self) -> None:
        """Ends the thread after what was handed over so far; safe to call twice."""
        self._ending = True
        self._wake()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            logging.error("%s does not end: a handler blocks", self._name)

    def _wake(self) -> None:
        with self._lock:
            if self._woken or self._wake_writer < 0:
                return
            self._woken = True
            os.write(self._wake_writer, b"!")

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_reader, zmq.POLLIN)
        try:
            while True:
                ending = self._ending  # Read first: what was handed over before is still done.
                with self._lock:
                    if self._woken:
                        os.read(self._wake_reader, 16)
                        self._woken = False
                for _ in range(len(self._calls)):
                    self._guarded(self._calls.popleft())
                if ending:
                    return
                self._receive()
                self._guarded(self._on_tick)
                if self._calls:
                    continue
                if self.rest_seconds > 0:
                    time.sleep(self.rest_seconds)
                poller.poll(self._tick_ms)
        finally:
            with self._lock:
                os.close(self._wake_reader)
                os.close(self._wake_writer)
                self._wake_writer = -1
            self._socket.close(linger=1_000)  # The last answers are still on their way.

    def _receive(self) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(flags=_LAST)
            except zmq.Again:
                return
            self._guarded(lambda: self._on_frames(frames))  # noqa: B023 - called at once.

    def _guarded(self, function: Callable[[], None]) -> None:
        """Logs what must not end the thread: others depend on its answers."""
        try:
            function()
        except Exception:
            logging.exception("%s continues after an error", self._name)
