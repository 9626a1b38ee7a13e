"""Chooses how a learner of other processes' experience is paced: by its replay or its queue."""

from __future__ import annotations

from typing import Callable

from actor_learner import plan as plan_lib
from actor_learner.jobs.workers import shared_queue
from actor_learner.replay.reading import version_limit
from actor_learner.runs import learning_side, pacing

_LOOK_SECONDS = 0.01  # How often a queue is looked at.
_MAX_UPDATES = 1_000


def make_pacing(
    plan: plan_lib.Plan,
    learning: learning_side.LearningSide,
    limit: version_limit.VersionLimit | None,
    table: pacing.Table,
    num_actors: Callable[[], int],
    shared: shared_queue.SharedQueue | None = None,
) -> pacing.Pacing:
    """Makes the pacing of a learner job.

    Args:
      plan: What the experiment comes to.
      learning: Counts steps, and those that were skipped.
      limit: Drops old items from a queue; None if there is none.
      table: Returns the state of the table with the experience.
      num_actors: Returns how many actors there are.
      shared: The queue, if several learners share it.
    """
    if plan.group_steps is None:
        environment_step, train_step = learning.counters()
        return pacing.ReplayPacing(
            plan,
            table,
            environment_step=environment_step,
            train_step=train_step,
            num_actors=num_actors,
            look_seconds=pacing.LOOK_SECONDS,
        )
    if shared is not None:
        waiting = pacing.WaitingBatches(
            table, shared.items_per_batch, shared.in_training, seconds=_LOOK_SECONDS
        )
        return pacing.QueuePacing(
            plan, waiting.waiting, num_actors=num_actors, max_updates=_MAX_UPDATES
        )
    items = plan.stream.cells_per_batch(plan.experience)
    learner = learning.trainer.learner
    arrived = pacing.ArrivedBatches(
        table,
        items,
        lambda: learner.skipped_steps * items + (0 if limit is None else limit.dropped),
        seconds=_LOOK_SECONDS,
    )
    return pacing.QueuePacing(
        plan, arrived.waiting, num_actors=num_actors, max_updates=_MAX_UPDATES
    )
