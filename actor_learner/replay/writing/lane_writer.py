"""`LaneWriter`: the steps of one lane on their way to the server, and where its episode stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actor_learner.replay.layouts import trajectory_layout
from actor_learner.replay.writing import item_writer
from actor_learner.support import errors


class LaneWriter(item_writer.ItemWriter):
    """Counts the steps of one lane and makes items of the most recent ones.

    Attributes:
      cached_steps: Steps added since the episode, or the stream, began.
      has_new_steps: Whether steps were added since the last item.
      overflowed: For the observer: the episode is longer than allowed.
      next_step_type: For the observer: what the last step announced; None at the start.
      last_step: For the observer: the last step of the episode, as leaves or as a nest; None at the
        start.
      dropped_episodes: For the observer: how many episodes were cut off by a foreign reset.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dropped_episodes = 0
        self.start()

    def start(self) -> None:
        """Forgets the cached steps; what was added before is no longer part of any item."""
        self.cached_steps = 0
        self.has_new_steps = False
        self.overflowed = False
        self.next_step_type: int | None = None
        self.last_step: Any = None

    def add(self, leaves: list[Any], layout: trajectory_layout.TrajectoryLayout) -> None:
        """Adds one step, the arrays of one lane, which Reverb copies, and counts it."""
        self.add_uncounted(leaves, layout)
        self.cached_steps += 1

    def add_uncounted(self, leaves: list[Any], layout: trajectory_layout.TrajectoryLayout) -> None:
        """Adds one step, as `add` does; the caller counts it."""
        try:
            self.append(leaves)
        except errors.SpecMismatchError as error:
            differences = "; ".join(layout.describe_step(leaves))
            raise errors.SpecMismatchError(f"{error}. {differences}") from error
        self.has_new_steps = True

    def make_item(self, num_steps: int, priority: float) -> None:
        """Makes an item of the last `num_steps` steps in every table; waits if it must."""
        self.make_item_of([column[-num_steps:] for column in self.columns], priority)

    def make_item_of(
        self, item: list[Any], priority: float, tables: Sequence[str] | None = None
    ) -> None:
        """Makes an item of slices of `columns`; waits if too many are unconfirmed."""
        self.create_item(item, priority, tables)
        self.has_new_steps = False
        self.make_room()

    def end_episode(self) -> None:
        """Waits as `flush` does, then starts an empty cache under a new episode id."""
        self.start()
        self.clear()
