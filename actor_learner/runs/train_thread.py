"""Takes train steps in a second thread, so that the caller can stop waiting for them.

If the server of a dataset is gone, TensorFlow waits for it without a deadline, and signals do not
reach it; it continues once a server is back at the same address.
"""

from __future__ import annotations

import queue
import threading
from typing import Callable

_GLANCE_SECONDS = 0.1


class TrainThread:
    """Runs `train` in a thread, one call at a time.

    Args:
      train: Takes a number of train steps.
    """

    def __init__(self, train: Callable[[int], None]) -> None:
        self._train = train
        self._todo: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="train", daemon=True)
        self._thread.start()

    def run(self, iterations: int, while_waiting: Callable[[float], None]) -> None:
        """Trains, and blocks until that is done. Re-raises what `train` raises.

        Args:
          iterations: Train steps to take.
          while_waiting: Called about ten times per second with the seconds waited so far. What it
            raises is raised here; the train steps are then abandoned, and this object must not be
            used again.
        """
        self._done.clear()
        self._todo.put(iterations)
        waited = 0.0
        while not self._done.wait(_GLANCE_SECONDS):
            waited += _GLANCE_SECONDS
            while_waiting(waited)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Ends the thread; a stuck one ends with the process."""
        self._todo.put(None)

    def _run(self) -> None:
        while True:
            iterations = self._todo.get()
            if iterations is None:
                return
            try:
                self._train(iterations)
            except BaseException as error:  # noqa: B036 - re-raised in the thread that waits.
                self._error = error
            self._done.set()
