"""Collecting in a thread while the learner trains: the thread, and the policy it acts with."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable

import tensorflow as tf
from absl import logging

from actor_learner.runs import collector as collector_lib
from actor_learner.runs import step_watch
from actor_learner.support import errors

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
        self._lock = threading.Lock()
        self._snapshot: list[tf.Tensor] | None = None
        self.publish()

    def publish(self) -> None:
        """Takes a snapshot; called by the learner's thread between train calls."""
        snapshot = self._read()
        with self._lock:
            self._snapshot = snapshot

    def apply(self) -> None:
        """Assigns the latest snapshot; called by the acting thread between turns."""
        with self._lock:
            snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            for variable, value in zip(self._target, snapshot):
                variable.assign(value)


class CollectorThread:
    """Runs a collector, turn by turn, in a thread of its own.

    Args:
      collector: Used by this thread alone from `start` to `stop`.
      watch: Observes the collector's steps.
      may_run: Whether another turn may be taken now; asked again after each `learner_advanced`.
      before_turn: Called in the thread before each turn.
    """

    def __init__(
        self,
        collector: collector_lib.Collector,
        watch: step_watch.StepWatch,
        may_run: Callable[[], bool],
        before_turn: Callable[[], None],
    ) -> None:
        self._collector = collector
        self._watch = watch
        self._may_run = may_run
        self._before_turn = before_turn
        self._changed = threading.Condition()
        self._stopping = False
        self._in_turn = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def learner_advanced(self) -> None:
        """Says that the learner has trained, so that another turn may be due."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        """Waits until `until()` holds, which is asked after each turn and twice a second.

        Raises:
          errors.EnvironmentError: If the thread is stuck in a step of its environment.
          errors.ActorLearnerError: If the thread itself waits for the learner all the while.
          Whatever the thread raised.
        """
        since = self._watch.now()
        with self._changed:
            while self._error is None and not until():
                # `until` may have found that collecting must go on before anything can be due.
                self._changed.notify_all()
                self._changed.wait(_LOOK_UP_SECONDS)
                overdue = self._watch.overdue_seconds(since)
                if overdue is not None and self._error is None:
                    raise self._silence(overdue)
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raises what the thread raised, with its traceback."""
        if self._error is not None:
            raise self._error

    def stop(self) -> bool:
        """Ends the thread after the turn it is in, however long that takes while it takes steps.

        Returns:
          Whether it has ended. If not, it is stuck in its environment, which is logged; it ends
          with the process.
        """
        since = self._watch.now()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        while self._thread.is_alive():
            self._thread.join(_LOOK_UP_SECONDS)
            overdue = self._watch.overdue_seconds(since)
            if overdue is not None and self._thread.is_alive():
                logging.warning("The collecting thread is left behind: %s", self._silence(overdue))
                return False
        return True

    def _run(self) -> None:
        try:
            while self._wait_for_turn():
                self._before_turn()
                self._collector.run()
                with self._changed:
                    self._in_turn = False
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
            if not self._stopping:
                self._watch.begin_turn()
                self._in_turn = True
            return not self._stopping

    def _silence(self, seconds: float) -> errors.ActorLearnerError:
        """The error for a thread of which nothing was heard for `seconds`."""
        if not self._in_turn:
            return errors.ActorLearnerError(
                f"for {seconds:.0f} s the learner has waited for the collecting thread to make a "
                "train step due, and the thread for the learner to take one"
            )
        return errors.EnvironmentError(
            f"the learner waits for the collecting thread, which has taken no step for "
            f"{seconds:.0f} s; its longest before took {self._watch.longest_seconds:.3g} s. Its "
            "environment does not return, or the replay server takes no items. If single steps "
            "may take that long, raise Experiment.sample_timeout_seconds"
        )
