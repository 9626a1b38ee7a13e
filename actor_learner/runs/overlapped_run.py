"""Training while a thread collects: who may go on when, and how both come to an end."""

from __future__ import annotations

from typing import Callable

from actor_learner.runs import collector as collector_lib
from actor_learner.runs import overlap, own_supply, step_watch
from actor_learner.runs import trainer as trainer_lib


class OverlappedRun:
    """Trains in the caller's thread on what a collector writes meanwhile in a thread of its own.

    Args:
      collector: Used by its thread alone while `run` runs.
      trainer: Used by the caller's thread alone.
      policy_copy: From the trained policy to the one that acts.
      supply: Says how many train steps are due, and how far collecting may go.
      watch: Observes the collector's steps.
      counters: Returns environment steps and train steps.
      environment_steps: How many of them to take.
      ended: Whether training is to end before they are taken.
      after_training: Called after each call of the trainer.
    """

    def __init__(
        self,
        *,
        collector: collector_lib.Collector,
        trainer: trainer_lib.Trainer,
        policy_copy: overlap.PolicyCopy,
        supply: own_supply.OwnSupply,
        watch: step_watch.StepWatch,
        counters: Callable[[], tuple[int, int]],
        environment_steps: int,
        ended: Callable[[], bool],
        after_training: Callable[[], None],
    ) -> None:
        self._trainer = trainer
        self._policy_copy = policy_copy
        self._supply = supply
        self._counters = counters
        self._environment_steps = environment_steps
        self._ended = ended
        self._after_training = after_training
        self._thread = overlap.CollectorThread(
            collector, watch, may_run=self._may_collect, before_turn=policy_copy.apply
        )

    def run(self) -> None:
        """Trains until the steps are taken and learned from, or training is to end.

        Raises:
          errors.EnvironmentError: If the environment does not return from a step.
          Whatever the collecting thread or the trainer raised; if both did, what broke first.
        """
        self._thread.start()
        try:
            while not self._finished():
                if self._updates_due() > 0:
                    self._train_due()
                else:
                    self._thread.wait(lambda: self._updates_due() > 0 or self._finished())
        except BaseException:
            self._thread.raise_if_failed()
            raise
        finally:
            self._thread.stop()
        self._thread.raise_if_failed()
        while not self._ended() and self._updates_due() > 0:
            self._train_due()

    def _may_collect(self) -> bool:
        environment_step, train_step = self._counters()
        if environment_step >= self._environment_steps:
            return False
        return environment_step < self._supply.steps_allowed(environment_step, train_step)

    def _updates_due(self) -> int:
        return self._supply.updates_due(*self._counters())

    def _train_due(self) -> None:
        self._trainer.run(min(self._updates_due(), self._supply.updates_per_call))
        self._policy_copy.publish()
        self._thread.learner_advanced()
        self._after_training()

    def _finished(self) -> bool:
        return self._ended() or self._counters()[0] >= self._environment_steps
