"""Small messages between jobs, through a table of the replay server: each is read once."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from absl import logging
from reverb import errors as reverb_errors

from actor_learner.support import errors, reverb_calls

REPORTS, EVALUATIONS = "reports", "evaluations"

MESSAGE_BYTES = 2_048
"""Room for one message: a column of Reverb has one shape."""

_MOST_MESSAGES = 100_000
_PAUSE_SECONDS = 0.5


def mailbox_table(name: str) -> reverb.Table:
    """The table that a mailbox needs; when nobody reads, the oldest messages are dropped."""
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=_MOST_MESSAGES,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={"message": tf.TensorSpec([1, MESSAGE_BYTES], tf.uint8)},
    )


class Sender:
    """Sends messages; each is a dict that JSON can write.

    Args:
      client: Of the replay server.
      table: Name of the mailbox.
      max_in_flight: Messages that may be unconfirmed; `send` waits before it adds another.
      timeout_seconds: How long it may wait.
    """

    def __init__(
        self,
        client: reverb.Client,
        table: str,
        *,
        max_in_flight: int = 20,
        timeout_seconds: float = 60.0,
    ) -> None:
        self._client = client
        self._table = table
        self._max_in_flight = max_in_flight
        self._timeout_seconds = timeout_seconds
        self._writer: reverb.TrajectoryWriter | None = None
        self._unconfirmed = 0

    def send(self, message: Mapping[str, Any]) -> None:
        """Hands a message over; waits only while too many are unconfirmed.

        Raises:
          errors.ReplayTimeoutError: If that takes too long; this message is not handed over then.
          errors.ReplayError: If the server refuses what was sent before.
          ValueError: If the message is too long.
        """
        text = json.dumps(message).encode()
        if len(text) > MESSAGE_BYTES:
            raise ValueError(f"a message of {len(text)} bytes does not fit into {MESSAGE_BYTES}")
        if self._unconfirmed >= self._max_in_flight:
            self.flush()
        if self._writer is None:
            # Checking items would ask the server, which waits for ever if it is gone.
            self._writer = self._client.trajectory_writer(1, validate_items=False)
        self._writer.append({"message": np.frombuffer(text.ljust(MESSAGE_BYTES), np.uint8)})
        item = {"message": self._writer.history["message"][-1:]}
        self._writer.create_item(self._table, priority=1.0, trajectory=item)
        self._unconfirmed += 1

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Waits until all messages are confirmed.

        Args:
          timeout_seconds: How long; None is what the sender was made with.

        Raises:
          errors.ReplayTimeoutError: If that takes too long, or `reverb_calls.giving_up_when` says
            so. The messages are still on their way.
          errors.ReplayError: If the server refuses them; they are dropped.
        """
        if self._writer is None:
            return
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            reverb_calls.wait_in_slices(
                lambda timeout_ms: self._writer.flush(0, timeout_ms), seconds
            )
        except reverb_errors.DeadlineExceededError as error:
            raise errors.ReplayTimeoutError(
                f"the replay server at {self._client.server_address} has not taken messages for "
                f"'{self._table}' within {seconds:g} s"
            ) from error
        except (RuntimeError, reverb_errors.ReverbError) as error:
            self.discard()  # The writer would refuse all that follows.
            raise errors.ReplayError(
                f"the replay server at {self._client.server_address} refused messages for "
                f"'{self._table}': {error}"
            ) from error
        self._unconfirmed = 0

    def discard(self) -> None:
        """Drops the messages that are not confirmed; does not wait.

        Otherwise they are sent, with no more doing of ours, to whatever server answers at the
        address next. For messages that the next one makes up for.
        """
        self._writer = None
        self._unconfirmed = 0


class Receiver:
    """Takes messages out of a mailbox, in a thread of its own; one receiver per mailbox.

    A server that goes away is waited for.

    Args:
      client: Of the replay server.
      table: Name of the mailbox.
    """

    def __init__(self, client: reverb.Client, table: str) -> None:
        self._client = client
        self._table = table
        self._messages: queue.SimpleQueue = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mailbox-{table}", daemon=True)
        self._thread.start()

    def receive(self) -> list[dict[str, Any]]:
        """All messages that have come since the last call, in their order; does not wait."""
        messages = []
        while True:
            try:
                messages.append(json.loads(self._messages.get_nowait()))
            except queue.Empty:
                return messages

    def close(self) -> None:
        """Takes no more messages. The thread may be waiting for one, and ends with the process."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                # One long-lived sampler: each fetches ahead, and what it has is lost with it.
                for sample in self._client.sample(
                    self._table, 2**62, emit_timesteps=False, unpack_as_table_signature=True
                ):
                    self._messages.put(np.asarray(sample.data["message"])[0].tobytes())
                    if self._stopping.is_set():
                        return
            except (RuntimeError, reverb_errors.ReverbError) as error:
                logging.info("The mailbox '%s' waits for its server: %s", self._table, error)
            self._stopping.wait(_PAUSE_SECONDS)
