"""How many train steps the experience at hand is good for, within one process."""

from __future__ import annotations

import dataclasses
from typing import Callable, Union

from absl import logging

from actor_learner import plan as plan_lib
from actor_learner.replay.server import state
from actor_learner.runs import trainer
from actor_learner.support import errors


class ReplaySupply:
    """For replay: train steps follow environment steps at the configured ratio.

    They begin when the experience can be sampled. Until then none falls due, since the thread that
    would wait for a sample may be the one that collects: sequences are written when an episode
    ends, and a `min_size` limit is counted in items, whatever `learn_from` says.

    `updates_due` is for the learner's thread, `steps_allowed` for any.

    Attributes:
      updates_per_call: The most train steps to take before the policy that acts is renewed.

    Args:
      plan: What the experiment comes to.
      pace: From where to count.
      why_no_sample: Says why the experience cannot be sampled now; None if it can.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        pace: plan_lib.Pace,
        why_no_sample: Callable[[], str | None],
    ) -> None:
        self.updates_per_call = trainer.MOST_ITERATIONS
        self._pace = pace
        self._ahead = plan.steps_ahead()
        self._why_no_sample = why_no_sample
        self._can_sample = False
        self._waits_for: str | None = None

    def updates_due(self, environment_step: int, train_step: int) -> int:
        """Train steps to take now; 0 or less: collect first."""
        due = self._pace.updates_due(environment_step) - train_step
        if due > 0 and not self._can_sample:
            self._waits_for = self._why_no_sample()
            if self._waits_for is not None:
                self._pace = dataclasses.replace(self._pace, learn_from=environment_step)
                return 0
            self._can_sample = True
        return due

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        """Environment steps by which collecting is to wait for the learner."""
        del environment_step
        return self._pace.steps_until(train_step) + self._ahead

    def require_training(self, environment_step: int, train_step: int) -> None:
        """Refuses, when all steps are taken, to call a run complete that learned nothing at all.

        Raises:
          errors.ReplayError: If the experience never could be sampled.
        """
        if self._waits_for is None:
            return
        if train_step == 0:
            raise errors.ReplayError(
                f"all {environment_step:,} environment steps are taken, and the learner has not "
                f"taken one train step: {self._waits_for}. Collect for longer "
                "(Experiment.environment_steps), or lower the table's min_size"
            )
        logging.warning("Nothing was learned since the run was resumed: %s.", self._waits_for)


class TurnSupply:
    """For queues: a train step per turn, which collects what one batch is made of.

    Attributes:
      updates_per_call: The most train steps to take before the policy that acts is renewed. With
        more than one, what is collected meanwhile could be older than the turns ahead allow.

    Args:
      plan: What the experiment comes to.
      turns: Returns how many turns are complete, with all they wrote confirmed by the server.
      train_step: Train steps taken before the first turn.
      skipped: Returns how many batches were taken and not learned from, since the first turn.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        turns: Callable[[], int],
        train_step: int,
        skipped: Callable[[], int] = lambda: 0,
    ) -> None:
        self.updates_per_call = 1
        self._steps_per_turn = plan.steps_per_turn
        self._turns = turns
        self._first_train_step = train_step
        self._skipped = skipped

    def updates_due(self, environment_step: int, train_step: int) -> int:
        """Train steps to take now; 0 or less: collect first."""
        del environment_step
        return self._turns() - (train_step - self._first_train_step) - self._skipped()

    def steps_allowed(self, environment_step: int, train_step: int) -> int:
        """Environment steps by which collecting is to wait for the learner."""
        waiting = self.updates_due(environment_step, train_step)
        return environment_step + max(0, plan_lib.TURNS_AHEAD - waiting) * self._steps_per_turn

    def require_training(self, environment_step: int, train_step: int) -> None:
        """Every turn was learned from, or the learner has raised."""


OwnSupply = Union[ReplaySupply, TurnSupply]


def make_supply(
    plan: plan_lib.Plan,
    *,
    environment_step: int,
    train_step: int,
    table: Callable[[], state.TableState],
    turns: Callable[[], int],
    skipped: Callable[[], int] = lambda: 0,
) -> OwnSupply:
    """The supply that fits the plan's stream, from these counters on.

    Args:
      plan: What the experiment comes to.
      environment_step: Environment steps taken so far.
      train_step: Train steps taken so far.
      table: Returns the state of the table with the experience.
      turns: Returns how many turns the collector has completed.
      skipped: Returns how many train steps were left out, since they were not finite.
    """
    if plan.group_steps is not None:
        return TurnSupply(plan, turns, train_step, skipped)

    def why_no_sample() -> str | None:
        now = table()
        return now.describe() if now.blocked == "sampling" else None

    pace = plan.pace(environment_step, train_step, replay_is_empty=table().size == 0)
    return ReplaySupply(plan, pace, why_no_sample)
