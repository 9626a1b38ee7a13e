"""Streams of counted steps for observer tests: what happened in a lane, and how to read items."""

from __future__ import annotations

import numpy as np
import tree
from tf_agents.trajectories import trajectory

FIRST, MID, LAST = 0, 1, 2


def steps(lengths, lane=0):
    """The trajectories of consecutive episodes of `lengths` transitions, boundary steps included.

    The observation of step t of the n-th episode (n = 1, 2, ...) is `1000 * lane + 10 * n + t`, so
    it is never 0, the observation of padding.
    """
    stream = []
    for number, length in enumerate(lengths, start=1):
        for t in range(length + 1):
            step_type = LAST if t == length else FIRST if t == 0 else MID
            next_step_type = FIRST if t == length else LAST if t == length - 1 else MID
            stream.append(
                trajectory.Trajectory(
                    step_type=np.array(step_type, np.int32),
                    observation={
                        "count": np.array(1000 * lane + 10 * number + t, np.int64),
                        "picture": np.full((2, 2), t, np.uint8),
                    },
                    action=np.array([t, -t], np.float32),
                    policy_info=(),
                    next_step_type=np.array(next_step_type, np.int32),
                    reward=np.array(t, np.float32),
                    discount=np.array(0.0 if next_step_type == LAST else 1.0, np.float32),
                )
            )
    return stream


def batched(lanes):
    """Streams of equal length, one per lane, as one stream of `[lanes, ...]`."""
    assert len({len(lane) for lane in lanes}) == 1
    return [tree.map_structure(lambda *leaves: np.stack(leaves), *row) for row in zip(*lanes)]


def read_items(client, table):
    """All items of a queue, in order, as lists of columns."""
    size = client.server_info(5)[table].current_size
    return [client_sample.data for client_sample in _samples(client, table, size)]


def counts(items):
    """The observations counted in each item."""
    return [tuple(int(value) for value in item[1]) for item in items]


def _samples(client, table, size):
    return list(client.sample(table, size, emit_timesteps=False)) if size else []
