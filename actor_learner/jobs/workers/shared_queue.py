"""Train steps of one of several learners, which take their unrolls out of one queue."""

from __future__ import annotations

from typing import Callable

import numpy as np

from actor_learner.jobs.exchange import learner_group
from actor_learner.replay.reading import version_limit


class SharedQueue:
    """Takes train steps, for which each of several learners draws its part of the batch.

    No learner takes an unroll out before all of them have begun the train step. So what the queue
    holds between two train steps is all that has arrived and was not learned from, whoever dies.

    Args:
      group: The learners.
      train: Takes a number of train steps.
      part_items: Items of the queue that this learner takes out for each.
      limit: Drops items that are too old; None if there is none.

    Attributes:
      lost: Of the chief, items that other learners were to take out for train steps which they did
        not complete. At most: one that has died may not have come to taking its part out.
    """

    def __init__(
        self,
        group: learner_group.ChiefGroup | learner_group.MemberGroup,
        train: Callable[[int], None],
        *,
        part_items: int,
        limit: version_limit.VersionLimit | None = None,
    ) -> None:
        self._group = group
        self._train = train
        self._part_items = part_items
        self._limit = limit
        # It counts for all of them.
        self._chief = group if isinstance(group, learner_group.ChiefGroup) else None
        self._told = 0  # Dropped items that all know of.
        self._is_training = False
        self.lost = 0

    def items_per_batch(self) -> int:
        """Of the chief: how many items all learners that train now take out for a train step."""
        return self._part_items * self._chief.size

    def in_training(self) -> int:
        """How many train steps are under way."""
        return int(self._is_training)

    def run(self, iterations: int) -> None:
        """Takes train steps; blocks until the other learners begin and end each of them, too.

        Raises:
          Whatever `train` raises, and the group if this learner is not part of it any more.
        """
        for _ in range(iterations):
            self._is_training = True
            try:
                self._train_together()
            finally:
                self._is_training = False

    def _train_together(self) -> None:
        self._begin()
        begun = self._others()
        try:
            self._train(1)
        finally:
            self.lost += self._part_items * len(begun - self._others())

    def _others(self) -> frozenset[str]:
        return frozenset() if self._chief is None else self._chief.members

    def _begin(self) -> None:
        """Waits for all learners, and tells them how many items this one has dropped."""
        dropped = self._dropped()
        summed, _ = self._group.begin(np.array([dropped - self._told], np.float32))
        if self._chief is not None and self._limit is not None:
            self._limit.note_dropped(int(summed[0]) - (dropped - self._told))
            dropped = self._dropped()
        self._told = dropped

    def _dropped(self) -> int:
        return 0 if self._limit is None else self._limit.dropped
