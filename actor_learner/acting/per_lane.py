"""Lets observers written for one lane see many."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tree
from tf_agents.trajectories import trajectory as trajectory_lib


class PerLaneObserver:
    """One observer per lane, each called with that lane's steps without a lane dimension.

    For stateful observers that know single steps only, such as TF-Agents' own Reverb observers:

    ```python
    PerLaneObserver(lambda: reverb_utils.ReverbAddTrajectoryObserver(client, table, 2), num_lanes=8)
    ```

    Costs a Python call per lane and step; our own observers take all lanes at once.

    Args:
      make_observer: Called `num_lanes` times, for observers that share nothing.
      num_lanes: Lanes of the environment.
    """

    def __init__(self, make_observer: Callable[[], Any], num_lanes: int) -> None:
        self.observers = [make_observer() for _ in range(num_lanes)]

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        lanes = np.shape(trajectory.step_type)
        if lanes != (len(self.observers),):
            raise ValueError(
                f"{len(self.observers)} per-lane observers were given a step of shape {lanes}"
            )
        leaves = tree.flatten(trajectory)
        for lane, observer in enumerate(self.observers):
            observer(tree.unflatten_as(trajectory, [leaf[lane, ...] for leaf in leaves]))

    def flush(self) -> None:
        """Flushes every observer."""
        for observer in self.observers:
            observer.flush()

    def close(self) -> None:
        """Closes every observer."""
        for observer in self.observers:
            observer.close()
