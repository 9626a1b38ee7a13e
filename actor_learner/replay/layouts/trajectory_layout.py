"""The fixed layout of the trajectories that an observer receives: flattened once, indexed after."""

from __future__ import annotations

from typing import Any

import numpy as np
import tree
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.server import signatures
from actor_learner.support import errors

FIRST = int(ts.StepType.FIRST)
LAST = int(ts.StepType.LAST)


class TrajectoryLayout:
    """What the first trajectory looked like, and so what all others must.

    Attributes:
      num_lanes: Length of the leading dimension of every leaf; None for trajectories of one lane
        without that dimension.
      step: One step of one lane as a nest like the trajectory, for comparison with signatures.
    """

    def __init__(self, trajectory: Any, needs_step_types: bool):
        """Reads the layout off a trajectory.

        Args:
          trajectory: A `Trajectory`, or where `needs_step_types` is False any nest of arrays, which
            then is one step of one lane.
          needs_step_types: Whether the episodes' ends must be visible.
        """
        self.has_step_types = hasattr(trajectory, "step_type") and hasattr(
            trajectory, "next_step_type"
        )
        if needs_step_types and not self.has_step_types:
            raise errors.SpecMismatchError(
                f"this observer cuts episodes and needs trajectories with step_type and "
                f"next_step_type, but got a {type(trajectory).__name__}; only "
                f"ReverbTrajectorySequenceObserver takes flattened ones"
            )
        self._paths = [path for path, _ in tree.flatten_with_path(trajectory)]
        leaves = [np.asarray(leaf) for leaf in tree.flatten(trajectory)]
        self.num_lanes = self._count_lanes(trajectory, leaves)
        step = leaves if self.num_lanes is None else [leaf[0] for leaf in leaves]
        self.step = tree.unflatten_as(trajectory, step)

    def leaves(self, trajectory: Any) -> list[np.ndarray]:
        """The arrays of a trajectory in the order of the table's columns, with any lanes.

        Raises:
          errors.SpecMismatchError: If it has more or fewer fields, or other lanes, than the first.
        """
        leaves = [np.asarray(leaf) for leaf in tree.flatten(trajectory)]
        if len(leaves) != len(self._paths):
            raise errors.SpecMismatchError(
                f"a trajectory has {len(leaves)} fields, the first one had {len(self._paths)}: "
                + "; ".join(signatures.describe_mismatch(self.step, trajectory))
            )
        if self.num_lanes is not None:
            for path, leaf in zip(self._paths, leaves):
                if leaf.shape[:1] != (self.num_lanes,):
                    raise errors.SpecMismatchError(
                        f"{signatures.format_path(path)} has shape {list(leaf.shape)}; its first "
                        f"dimension must be the {self.num_lanes} lanes of the first trajectory"
                    )
        return leaves

    def describe_step(self, leaves: list[Any]) -> list[str]:
        """How one step of one lane differs from that of the first trajectory."""
        return signatures.describe_mismatch(
            dict(zip(map(signatures.format_path, self._paths), tree.flatten(self.step))),
            dict(zip(map(signatures.format_path, self._paths), leaves)),
        )

    def _count_lanes(self, trajectory: Any, leaves: list[np.ndarray]) -> int | None:
        if not self.has_step_types:
            return None
        shape = np.asarray(trajectory.step_type).shape
        if not shape:
            return None
        wrong = [
            f"{signatures.format_path(path)} {list(leaf.shape)}"
            for path, leaf in zip(self._paths, leaves)
            if leaf.shape[:1] != shape[:1]
        ]
        if len(shape) > 1 or wrong or not shape[0]:
            raise errors.SpecMismatchError(
                f"step_type has shape {list(shape)}; it must be [] for one lane, or [lanes] with "
                f"the same first dimension in every field" + "".join(f"; {line}" for line in wrong)
            )
        return shape[0]
