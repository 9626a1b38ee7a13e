"""Collects and trains in turns, in one thread."""

from __future__ import annotations

from typing import Callable

from actor_learner.runs import acting_side, further_policy, learning_side


def run(
    acting: acting_side.ActingSide,
    learning: learning_side.LearningSide,
    *,
    environment_steps: int,
    ended: Callable[[], bool],
    further: further_policy.FurtherPolicies,
) -> None:
    """Repeats: collects a turn, then takes the train steps that are due.

    Args:
      acting: The acting side.
      learning: The learning side.
      environment_steps: Environment steps to take.
      ended: Returns whether training is to end early.
      further: Other policies of the same world, which are trained after each turn as well.
    """
    while learning.environment_step < environment_steps and not ended():
        further.begin_turn()
        acting.run()
        further.train(ended)
        while not ended() and (due := learning.updates_due()) > 0:
            learning.train(due)
        learning.write_row_if_due()


def run_offline(
    learning: learning_side.LearningSide,
    *,
    train_steps: int,
    evaluation_interval: int,
    ended: Callable[[], bool],
) -> None:
    """Trains on recorded experience alone.

    Args:
      learning: The learning side.
      train_steps: Train steps to take.
      evaluation_interval: Train steps between evaluations, which triggers make after a train call.
      ended: Returns whether training is to end early.
    """
    most = learning.pacing.max_updates
    interval = evaluation_interval or most
    while learning.train_step < train_steps and not ended():
        until_evaluation = interval - learning.train_step % interval
        learning.train(min(train_steps - learning.train_step, until_evaluation, most))
        learning.write_row_if_due()
