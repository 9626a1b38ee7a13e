"""Collecting and learning by turns, in one thread."""

from __future__ import annotations

from typing import Callable

from actor_learner.runs import acting_side, learning_side


def run(
    acting: acting_side.ActingSide,
    learning: learning_side.LearningSide,
    *,
    environment_steps: int,
    ended: Callable[[], bool],
) -> None:
    """Collects a turn, takes the train steps it made due, and so on.

    Args:
      acting: Collects.
      learning: Trains.
      environment_steps: How many to take.
      ended: Whether training is to end before they are taken.
    """
    while learning.environment_step < environment_steps and not ended():
        acting.run()
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
      learning: Trains.
      train_steps: How many to take.
      evaluation_interval: Train steps between evaluations, which triggers make after a train call.
      ended: Whether training is to end before they are taken.
    """
    most = learning.pacing.max_updates
    interval = evaluation_interval or most
    while learning.train_step < train_steps and not ended():
        until_evaluation = interval - learning.train_step % interval
        learning.train(min(train_steps - learning.train_step, until_evaluation, most))
        learning.write_row_if_due()
