"""Collects in one thread per device while the learner trains on another device (Sebulba)."""

from __future__ import annotations

import contextlib
from typing import Callable

from actor_learner.runs import learning_side
from actor_learner.runs.runners import device_actors, threads


def run(
    acting: device_actors.DeviceActors,
    learning: learning_side.LearningSide,
    *,
    lag: int,
    environment_steps: int,
    ended: Callable[[], bool],
) -> None:
    """Trains in the caller's thread while every actor fills its queue.

    Turn k of every actor makes the batch of train step k. Actors begin it as soon as the learner
    has taken k - lag train steps, and act with the policy of that train step. So the result does
    not depend on which thread is faster, and at most lag + 1 batches are waiting or under way.

    Args:
      acting: Used by the actors' threads while this runs, except for its counters.
      learning: Used by the caller's thread alone, except for its counters.
      lag: In train steps.
      environment_steps: How many to train on, over all actors. Turns that have begun by then are
        trained on, too.
      ended: Whether training is to end before they are taken.

    Raises:
      errors.EnvironmentError: If an environment does not return from a step.
      Whatever a thread or the trainer raised; if both did, what broke first.
    """
    policies = acting.policies
    policies.publish()
    taken = learning.environment_step
    allowed = lag + 1 if taken < environment_steps else 0

    def finished() -> bool:
        return ended() or policies.rounds >= allowed

    def train_due() -> None:
        nonlocal taken, allowed
        learning.train(learning.updates_due())
        # Counts the steps trained on, not those taken: the number of turns must not depend on which
        # thread is faster.
        taken += acting.steps_of_round()
        policies.publish()
        if taken < environment_steps:
            allowed = policies.rounds + lag + 1
        for thread in all_threads:
            thread.learner_advanced()
        acting.count_episodes()
        learning.write_row_if_due()

    all_threads = [
        threads.ActingThread(
            actor,
            may_run=lambda actor=actor: actor.turns < allowed,
            before_turn=lambda index=index, actor=actor: policies.apply(index, actor.turns),
        )
        for index, actor in enumerate(acting.actors)
    ]
    try:
        for thread in all_threads:
            thread.start()
        while not finished():
            if learning.updates_due() > 0:
                train_due()
                continue
            slowest = min(range(len(all_threads)), key=lambda i: acting.actors[i].turns)
            turns = acting.actors[slowest].turns
            all_threads[slowest].wait(
                lambda slowest=slowest, turns=turns: (
                    acting.actors[slowest].turns > turns or finished()
                )
            )
    except BaseException:
        for thread in all_threads:
            thread.raise_if_failed()
        raise
    finally:
        with contextlib.ExitStack() as stopping:
            for thread in all_threads:
                stopping.callback(thread.stop)
    for thread in all_threads:
        thread.raise_if_failed()
    acting.count_episodes()
