"""Datasets that turn stored items into training batches of exact size."""

from __future__ import annotations

from typing import Any, NamedTuple

import reverb
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.layouts import blocks, codec, frame_stacks
from actor_learner.replay.reading import n_step, shard_sampling
from actor_learner.replay.server import shards

_LAST = int(ts.StepType.LAST)


class TransitionInfo(NamedTuple):
    """What accompanies each transition of a batch.

    Attributes:
      version: `[batch]` int64, the train step of the policy that acted.
    """

    version: tf.Tensor


def items(
    server_address: str,
    table_name: str,
    signature: dict[str, tf.TensorSpec],
    *,
    max_in_flight: int,
    timeout_seconds: float | None,
    max_samples: int | None = None,
) -> tf.data.Dataset:
    """Samples items in the order in which the table gives them, each as a `reverb.ReplaySample`.

    Of several servers (`shards.Shards`), in proportion to what they hold, and without a timeout: a
    server whose turn does not come for long is no reason to end.

    Args:
      server_address: `host:port` of the replay server.
      table_name: The table.
      signature: What its items look like.
      max_in_flight: Items fetched ahead; more are older when used.
      timeout_seconds: The dataset ends if the table gives nothing for so long; None waits forever.
      max_samples: The dataset ends after so many items, and has taken no more; None for no end.
    """
    if isinstance(server_address, shards.Shards):
        share = -(-max_in_flight // len(server_address.addresses))

        def one(address: str) -> tf.data.Dataset:
            return items(address, table_name, signature, max_in_flight=share, timeout_seconds=None)

        return shard_sampling.in_proportion(one, server_address, table_name)
    return reverb.TrajectoryDataset(
        server_address,
        table_name,
        dtypes={name: spec.dtype for name, spec in signature.items()},
        shapes={name: spec.shape for name, spec in signature.items()},
        max_in_flight_samples_per_worker=max_in_flight,
        num_workers_per_iterator=1,  # Several would change the order.
        rate_limiter_timeout_ms=-1 if timeout_seconds is None else int(timeout_seconds * 1000),
        max_samples=-1 if max_samples is None else max_samples,
    )


def lane_transitions(
    server_address: str,
    table_name: str,
    layout: blocks.BlockLayout,
    batch_size: int,
    *,
    gamma: float = 1.0,
    shuffle_items: int | None = None,
    prefetch: int = 1,
    timeout_seconds: float | None = None,
) -> tf.data.Dataset:
    """Samples lane-batched items and re-batches their transitions.

    Each item holds rows of all lanes. Transitions that begin with an episode's boundary step are
    dropped, the rest of `shuffle_items` sampled items are mixed at random, and batches of exactly
    `batch_size` are cut from them. Every stored transition is equally likely.

    Args:
      server_address: `host:port` of the replay server.
      table_name: Table that a `BlockObserver` fills.
      layout: Layout of the items, the observer's.
      batch_size: Transitions per batch.
      gamma: Discount factor of the agent, used to sum rewards when `layout.n_step > 1`.
      shuffle_items: Items mixed before batches are cut: more items, less correlated batches, and
        older samples. By default enough for 16 batches, and at least 16, or 32 if items hold
        several rows, which are alike.
      prefetch: How many times `shuffle_items` items are mixed and kept ready in the background. A
        batch is at most `prefetch + 1` such pools old when it is used, and a quarter of one.
      timeout_seconds: The dataset ends if the table gives nothing for so long; None waits forever.

    Returns:
      Dataset of `(trajectory, TransitionInfo)`, trajectory leaves `[batch_size, 2, ...]`.
    """
    if shuffle_items is None:
        per_item = layout.rows_per_item * layout.num_lanes
        fewest = 16 if layout.rows_per_item == 1 else 32
        shuffle_items = max(fewest, -(-16 * batch_size // per_item))
    dataset = items(
        server_address,
        table_name,
        layout.signature(),
        max_in_flight=max(4, shuffle_items // 4),  # More would be stale.
        timeout_seconds=timeout_seconds,
    )

    # AutoGraph has nothing to convert here, and takes most of a second to find out.
    @tf.autograph.experimental.do_not_convert
    def pool(sample: reverb.ReplaySample) -> Any:
        trajectory, version = transitions(sample.data, layout, gamma)
        return trajectory, TransitionInfo(version)

    # Unpacked by the pool, not by the batch: the cost of these many small ops is per call. Handed
    # from thread to thread by the pool, too: for small agents a hand-over costs a tenth of a step.
    dataset = dataset.batch(shuffle_items, drop_remainder=True).map(pool).prefetch(prefetch)
    return dataset.rebatch(batch_size, drop_remainder=True)


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
        (shifted(step_type, 0) != _LAST)
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
