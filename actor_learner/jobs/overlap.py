"""Collecting in a thread while the learner trains: the thread, and the policy it acts with."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable

import tensorflow as tf

from actor_learner import errors
from actor_learner.jobs import collector as collector_lib

# How often a waiting thread looks up even if nobody has called it.
_LOOK_UP_SECONDS = 0.5


class PolicyCopy:
    """Variables of a policy of one's own, brought up to date by whole snapshots.

    The learner changes its variables one by one while it trains; a policy that read them meanwhile
    would act on a mixture of two versions.

    Args:
      source: Variables that are trained, the version among them.
      target: Variables of the policy that acts, like `source`.
    """

    def __init__(self, source: Sequence[tf.Variable], target: Sequence[tf.Variable]) -> None:
        if len(source) != len(target):
            raise ValueError(f"{len(source)} variables cannot be copied to {len(target)}")
        self._source = tuple(source)
        self._target = tuple(target)
        self._read = tf.function(lambda: [tf.identity(v) for v in self._source], autograph=False)
        self._snapshot: list[tf.Tensor] | None = None
        self.publish()

    def publish(self) -> None:
        """Takes a snapshot; called by the learner's thread between train calls."""
        self._snapshot = self._read()

    def apply(self) -> None:
        """Assigns the latest snapshot; called by the acting thread between turns."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            for variable, value in zip(self._target, snapshot):
                variable.assign(value)


class CollectorThread:
    """Runs a collector, turn by turn, in a thread of its own.

    Args:
      collector: Used by this thread alone from `start` to `stop`.
      may_run: Whether another turn may be taken now; asked again after each `learner_advanced`.
      before_turn: Called in the thread before each turn.
    """

    def __init__(
        self,
        collector: collector_lib.Collector,
        may_run: Callable[[], bool],
        before_turn: Callable[[], None],
    ) -> None:
        self._collector = collector
        self._may_run = may_run
        self._before_turn = before_turn
        self._changed = threading.Condition()
        self._stopping = False
        self._error: BaseException | None = None
        self._turns = 0
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    @property
    def turns(self) -> int:
        """Turns that are complete, with all they wrote confirmed by the server."""
        return self._turns

    def start(self) -> None:
        self._thread.start()

    def learner_advanced(self) -> None:
        """Says that the learner has trained, so that another turn may be due."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        """Waits until `until()` holds, or half a second, or the thread has failed.

        Raises:
          What the thread raised.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: until() or self._error is not None, timeout=_LOOK_UP_SECONDS
            )
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raises what the thread raised, with its traceback."""
        if self._error is not None:
            raise self._error

    def stop(self, timeout_seconds: float = 60.0) -> None:
        """Ends the thread after the turn it is in.

        Raises:
          errors.ActorLearnerError: If it is still running then; it ends with the process.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is None:
            return
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            raise errors.ActorLearnerError(
                f"the collecting thread has not ended its turn within {timeout_seconds:g} s: its "
                "environment does not return, or the replay server takes no items"
            )

    def _run(self) -> None:
        try:
            while self._wait_for_turn():
                self._before_turn()
                self._collector.run()
                with self._changed:
                    self._turns += 1
                    self._changed.notify_all()
        except BaseException as error:  # noqa: B036 - raised again in the learner's thread.
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _wait_for_turn(self) -> bool:
        """Waits until a turn may be taken; False if the thread is to end."""
        with self._changed:
            while not self._stopping and not self._may_run():
                self._changed.wait(_LOOK_UP_SECONDS)
            return not self._stopping
