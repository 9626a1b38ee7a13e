"""Gathers the steps of an unroll of all lanes, row by row, in the columns of one cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import tree
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import codec, unroll_layout


class UnrollRows:
    """The unroll under way: T steps of all lanes, and the observation that the last one led to.

    Args:
      layout: Layout of the cells.
    """

    def __init__(self, layout: unroll_layout.UnrollLayout) -> None:
        self._layout = layout
        self._columns, self._views = layout.buffers()
        is_bootstrap = [
            field.path == "step_type" or field.path.split("/")[0] == "observation"
            for field in layout.step.fields
        ]
        self._bootstrap_views = [view for view, of in zip(self._views, is_bootstrap) if of]
        self._once: dict[str, np.ndarray] = {}  # Columns of the current unroll's first row.
        self._row = 0
        self._next_step_type: np.ndarray | None = None

    def reset(self) -> None:
        """Drops the steps of an unfinished unroll; the next step begins another."""
        self._row = 0
        self._next_step_type = None

    def _begins(self, step_type: np.ndarray) -> bool:
        """Whether a step of these types is the first of an unroll.

        It is also if it is not the one that the last led to, because somebody has reset the lanes;
        then what was gathered is dropped.
        """
        expected = self._next_step_type
        if self._row and not (step_type is expected or np.array_equal(step_type, expected)):
            self.reset()
        return self._row == 0

    def add(
        self, trajectory: trajectory_lib.Trajectory, bootstrap: Any, version: int
    ) -> dict[str, np.ndarray] | None:
        """Adds one step; returns the columns of the cell if it completes the unroll.

        Args:
          trajectory: Leaves `[lanes, ...]`, which are copied.
          bootstrap: `(step_type, observation)` that the step led to.
          version: Train step of the policy that acts; that of the first row is kept.

        Returns:
          None, or columns that belong to this object and hold until the next step is added.
        """
        step, state = codec.split_state(trajectory)
        if self._begins(step.step_type):
            self._once = self._layout.state_columns(state)
            self._once[codec.VERSION] = np.int64(version)
        for view, leaf in zip(self._views, tree.flatten(step)):
            view[:, self._row] = leaf
        self._row += 1
        self._next_step_type = step.next_step_type
        if self._row < self._layout.unroll_length:
            return None
        for view, leaf in zip(self._bootstrap_views, tree.flatten(bootstrap)):
            view[:, self._row] = leaf
        self.reset()
        return {**self._columns, **self._once}
