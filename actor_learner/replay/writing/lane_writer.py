"""Writers of one lane's steps: what observers use, and what subclasses of theirs find in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tree

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


class StepWriter:
    """The part of `reverb.TrajectoryWriter` that observers written for TF-Agents use.

    A subclass that overrides `__call__` writes with it as it would there:

    ```python
    class FixedLengthObserver(observers.ReverbAddTrajectoryObserver):
        def __call__(self, trajectory):
            self._writer.append(trajectory)
            self._cached_steps += 1
            self._write_cached_steps()
    ```

    Steps are checked against the tables' signatures and waits have the observer's deadline, as in
    the observers themselves. Counting the steps is up to the subclass. It belongs to one observer
    and writes to the lane that the observer is at.

    Args:
      lane: Returns that lane.
      layout: Returns the layout of the observer's trajectories; given the first one, fixes it.
    """

    def __init__(
        self,
        lane: Callable[[], LaneWriter],
        layout: Callable[[Any], trajectory_layout.TrajectoryLayout],
    ) -> None:
        self._lane = lane
        self._layout = layout

    @property
    def history(self) -> Any:
        """A nest like the trajectories, of columns that slices are taken from for an item."""
        columns = self._lane().columns
        if columns is None:
            raise RuntimeError("the history of a writer is known after its first append()")
        return tree.unflatten_as(self._layout(None).step, columns)

    def append(self, trajectory: Any) -> None:
        """Adds one step of one lane.

        Raises:
          errors.SpecMismatchError: If it does not fit the tables' signatures or the first one, or
            has a lane dimension.
        """
        lanes = np.shape(getattr(trajectory, "step_type", ()))
        if hasattr(trajectory, "step_type") and lanes:
            raise errors.SpecMismatchError(
                f"a step of shape {list(lanes)} was appended to a writer of single steps: an "
                "observer that overrides __call__ sees many lanes through PerLaneObserver"
            )
        layout = self._layout(trajectory)
        self._lane().add_uncounted(layout.leaves(trajectory), layout)

    def create_item(self, table: str, priority: float, trajectory: Any) -> None:
        """Makes an item of slices of `history`."""
        self._lane().make_item_of(tree.flatten(trajectory), priority, [table])

    def flush(self) -> None:
        """Waits until the server has confirmed all items."""
        self._lane().flush()

    def end_episode(self) -> None:
        """Waits as `flush` does, then empties `history`."""
        self._lane().clear()
