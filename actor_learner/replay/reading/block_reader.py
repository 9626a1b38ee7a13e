"""Sampled cells as transitions, in graph mode."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.layouts import blocks, codec, frame_stacks
from actor_learner.replay.reading import n_step

LAST = int(ts.StepType.LAST)


def transitions(
    columns: dict[str, tf.Tensor], layout: blocks.BlockLayout, gamma: float
) -> tuple[Any, tf.Tensor]:
    """All valid transitions of some items, in random order.

    A transition is valid if it starts inside an episode, is followed by the step that continues it,
    and the rows it may reach into are there.

    Args:
      columns: As sampled, `[items, cells, ...]`.
      layout: Of the table.
      gamma: Discount factor for n-step returns.

    Returns:
      `(trajectory, version)`: leaves `[n, 2, ...]`, and `[n]` int64, the version of the policy
      that acted.
    """
    fields = layout.read(columns)  # [items * rows * lanes, ...]
    starts = tf.random.shuffle(_valid_starts(fields, layout))
    window = starts[:, None] + layout.num_lanes * tf.range(layout.n_step + 1, dtype=starts.dtype)
    # Of fields that are large, only the two rows that are left of each window are looked up.
    late = {*layout.large, *layout.stacks}
    windows = {
        field.path: window if field.path in late else tf.gather(fields[field.path], window)
        for field in layout.observed.fields
    }
    trajectory = n_step.fold(layout.nest(windows), gamma)
    if late:
        trajectory = _look_up(trajectory, late, fields, layout)
    return trajectory, tf.gather(fields[codec.VERSION], starts)


def _valid_starts(fields: dict[str, tf.Tensor], layout: blocks.BlockLayout) -> tf.Tensor:
    """Flat indices `[n]` of the rows that start valid transitions."""
    shape = [-1, layout.cells_per_item * layout.rows_per_item, layout.num_lanes]
    step_type = tf.reshape(fields[blocks.STEP_TYPE], shape)
    next_step_type = tf.reshape(fields[blocks.NEXT_STEP_TYPE], shape)
    first = layout.cells_before * layout.rows_per_item

    def shifted(tensor: tf.Tensor, by: int) -> tf.Tensor:
        return tensor[:, first + by : first + by + layout.rows_per_item]

    valid = (
        (shifted(step_type, 0) != LAST)
        & (shifted(next_step_type, 0) == shifted(step_type, 1))
        # Fillers come last: if the window's last row is none, all of its rows are real.
        & (shifted(step_type, layout.n_step) != blocks.FILLER)
    )
    found = tf.where(tf.reshape(valid, [-1]))[:, 0]
    per_item = layout.rows_per_item * layout.num_lanes
    rest = layout.cells_per_item * per_item - per_item
    return found + found // per_item * rest + layout.cells_before * per_item


def _look_up(
    trajectory: Any, paths: set[str], fields: dict[str, tf.Tensor], layout: blocks.BlockLayout
) -> Any:
    """Replaces the flat indices `[n, 2]` in the fields `paths` by what the rows hold."""
    names = [field.path for field in layout.observed.fields]
    leaves = dict(zip(names, tf.nest.flatten(trajectory)))
    for path in paths:
        if path not in layout.stacks:
            leaves[path] = tf.gather(fields[path], leaves[path])
            continue
        stack = layout.stacks[path]
        indices, blank = frame_stacks.source_rows(
            leaves[path],
            stack.size,
            layout.num_lanes,
            fields[blocks.STEP_TYPE],
            fields[layout.padding_path(path)],
        )
        leaves[path] = frame_stacks.assemble(fields[path], indices, blank, stack)
    return layout.nest(leaves)
