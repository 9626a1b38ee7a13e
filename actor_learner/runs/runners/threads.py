"""Collects in a second thread while the learner trains, with a copy of its policy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf
from absl import logging

from actor_learner.runs import acting_side, learning_side
from actor_learner.support import errors

# How often a waiting thread checks again even if it was not notified.
_LOOK_UP_SECONDS = 0.5


def run(
    acting: acting_side.ActingSide,
    learning: learning_side.LearningSide,
    policy_copy: PolicyCopy,
    *,
    environment_steps: int,
    ended: Callable[[], bool],
) -> None:
    """Trains in the caller's thread while the acting side collects in another.

    Returns when the steps are taken and trained on, or training is to end.

    Args:
      acting: The acting side; only its thread uses it until this returns.
      learning: The learning side; other threads read its counters only.
      policy_copy: Copies the trained policy to the one that acts.
      environment_steps: Environment steps to take.
      ended: Returns whether training is to end early.

    Raises:
      errors.EnvironmentError: If the environment does not return from a step.
      Whatever the acting thread or the trainer raised; if both did, the first error.
    """

    def may_act() -> bool:
        step, train_step = learning.environment_step, learning.train_step_now
        if step >= environment_steps:
            return False
        return step < learning.pacing.steps_allowed(step, train_step)

    def finished() -> bool:
        return ended() or learning.environment_step >= environment_steps

    def train_due() -> None:
        learning.train(learning.updates_due())
        policy_copy.publish()
        thread.learner_advanced()
        learning.write_row_if_due()

    thread = ActingThread(acting, may_run=may_act, before_turn=policy_copy.apply)
    thread.start()
    try:
        while not finished():
            if learning.updates_due() > 0:
                train_due()
            else:
                thread.wait(lambda: learning.updates_due() > 0 or finished())
    except BaseException:
        thread.raise_if_failed()
        raise
    finally:
        thread.stop()
    thread.raise_if_failed()
    while not ended() and learning.updates_due() > 0:
        train_due()


class PolicyCopy:
    """Updates the variables of a second policy by whole snapshots.

    The learner changes its variables one by one while it trains; a policy that read them
    then would act on a mixture of two versions.

    Args:
      source: Variables that are trained, including the version.
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

    @classmethod
    def of_policies(
        cls,
        source: tuple[Any, tf.Variable],
        target: tuple[Any, tf.Variable],
        *,
        shared: tf.Variable,
    ) -> PolicyCopy:
        """Makes a copy from one policy and its version to another of the same kind.

        Args:
          source: The policy that is trained, and its version.
          target: The policy that acts, and its version.
          shared: A variable that both policies read, which stays as it is.
        """

        def variables(policy: Any, version: tf.Variable) -> list[tf.Variable]:
            return [*(v for v in policy.variables() if v is not shared), version]

        return cls(variables(*source), variables(*target))

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


class ActingThread:
    """Runs an acting side in its own thread, turn by turn.

    Args:
      acting: The acting side; only this thread uses it from `start` to `stop`.
      may_run: Returns whether another turn may begin; called again after `learner_advanced`.
      before_turn: Called in the thread before each turn.
    """

    def __init__(
        self,
        acting: acting_side.ActingSide,
        may_run: Callable[[], bool],
        before_turn: Callable[[], None],
    ) -> None:
        self._acting = acting
        self._watch = acting.watch
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
        """Tells the thread that the learner has trained, so that another turn may be due."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        """Waits until `until()` is true; checks after each turn and twice a second.

        Raises:
          errors.EnvironmentError: If the thread is stuck in a step of its environment.
          errors.ActorLearnerError: If the thread waits for the learner in turn.
          Whatever the thread raised.
        """
        since = self._watch.now()
        with self._changed:
            while self._error is None and not until():
                # `until` may have found that collecting must continue before anything can be due.
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
        """Ends the thread after its current turn, however long that takes as long as it steps.

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
                self._acting.run()
                with self._changed:
                    self._in_turn = False
                    self._changed.notify_all()
        except BaseException as error:  # noqa: B036 - raised again in the learner's thread.
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _wait_for_turn(self) -> bool:
        """Waits until a turn may begin; returns False if the thread is to end."""
        with self._changed:
            while not self._stopping and not self._may_run():
                self._changed.wait(_LOOK_UP_SECONDS)
            if not self._stopping:
                self._watch.begin_turn()
                self._in_turn = True
            return not self._stopping

    def _silence(self, seconds: float) -> errors.ActorLearnerError:
        """Makes the error for a thread that has been silent for `seconds`."""
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
