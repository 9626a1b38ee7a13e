"""`StepWriter`: what subclasses of TF-Agents' observers find in `self._writer`."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tree

from actor_learner.replay.layouts import trajectory_layout
from actor_learner.replay.writing import lane_writer
from actor_learner.support import errors


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
        lane: Callable[[], lane_writer.LaneWriter],
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
