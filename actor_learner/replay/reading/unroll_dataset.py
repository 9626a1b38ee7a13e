"""The learner's end of an unroll queue: every unroll once, in order, in batches of exact size."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from actor_learner import experience
from actor_learner.replay.layouts import codec, unroll_layout
from actor_learner.replay.reading import datasets, shard_sampling, version_limit
from actor_learner.replay.server import shards

# These functions have no Python control flow on tensors; converting them would only take time.
_plain = tf.autograph.experimental.do_not_convert


_LONGEST_WAIT_SECONDS = 0.5


def unrolls(
    server_address: str,
    table_name: str,
    layout: unroll_layout.UnrollLayout,
    *,
    cells_per_batch: int = 1,
    prefetch: int = 1,
    timeout_seconds: float | None = None,
    limit: version_limit.VersionLimit | None = None,
) -> tf.data.Dataset:
    """Takes cells out of the queue and joins their lanes to batches.

    Unrolls come in the order in which the queue got them, each once. Up to `prefetch` batches are
    taken out before they are asked for: those are lost if the iterator is.

    Args:
      server_address: `host:port` of the replay server.
      table_name: Queue that `UnrollObserver`s fill.
      layout: Layout of the cells, the observers'.
      cells_per_batch: Cells that make a batch.
      prefetch: Batches taken out in advance; each makes the learner's data one train step older
        where actors run on meanwhile. With 0 cells are taken one by one, as they are asked for:
        the others stay in the queue, where somebody else may take them.
      timeout_seconds: The dataset ends if somebody has waited for a cell for so long, or a little
        longer; None waits forever. Time in which nobody asks for a batch does not count.
      limit: Cells that it does not accept when their batch is asked for are dropped.

    Returns:
      Dataset of `(experience.Unroll, experience.SampleInfo)`; leaves
      `[cells_per_batch * lanes, T + 1, ...]` and `[cells_per_batch * lanes]`.
    """
    num_servers = len(shards.addresses_of(server_address))
    ends = timeout_seconds is not None or not prefetch  # Whether those of one server do.

    def of_server(address: str) -> tf.data.Dataset:
        cells = datasets.items(
            address,
            table_name,
            layout.signature(),
            max_in_flight=max(1, -(-cells_per_batch * prefetch // num_servers)),
            # Whoever drops an iterator that waits for a cell waits for this time to run out.
            timeout_seconds=timeout_seconds and min(timeout_seconds / 4, _LONGEST_WAIT_SECONDS),
            max_samples=None if prefetch else 1,
        )
        return _endless(cells, in_advance=prefetch > 0) if ends else cells

    if isinstance(server_address, shards.Shards):
        cells = shard_sampling.as_they_come(of_server, server_address)
    else:
        cells = of_server(server_address)
    if ends:
        seconds = float("inf") if timeout_seconds is None else timeout_seconds
        cells = _until_kept_waiting(cells, seconds)
    if limit is not None:
        cells = cells.filter(_plain(lambda sample: limit.accepts(sample.data[codec.VERSION])))

    @_plain
    def join(sample: reverb.ReplaySample) -> tuple[experience.Unroll, experience.SampleInfo]:
        per_cell = experience.SampleInfo(
            sample.info.key,
            sample.info.probability,
            sample.info.table_size,
            sample.info.priority,
            sample.data[codec.VERSION],
        )
        info = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, layout.num_lanes), per_cell)
        return layout.unpack(sample.data), info

    options = tf.data.Options()
    options.autotune.enabled = False
    # No stage may run ahead: one that always asks for more would make idle time count.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_and_batch_fusion = False
    return cells.batch(cells_per_batch, drop_remainder=True).map(join).with_options(options)


def _endless(samples: tf.data.Dataset, *, in_advance: bool) -> tf.data.Dataset:
    """`(True, sample)`, and `(False, zeros)` whenever `samples` end, and begin again.

    Reverb begins to sample when its iterator is made. Unless that may be `in_advance`, it is made
    when a sample is asked for.

    Reverb's own timeout runs whether or not anybody asks for a sample: a queue that is empty while
    the learner does something else, such as evaluating, would end the dataset.
    """

    @_plain
    def no_sample(_: tf.Tensor) -> tuple[bool, Any]:
        return False, tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), samples.element_spec
        )

    once = tf.data.Dataset.range(1)
    real, none = samples.map(_plain(lambda sample: (True, sample))), once.map(no_sample)
    return (real.concatenate(none) if in_advance else none.concatenate(real)).repeat()


def _until_kept_waiting(endless: tf.data.Dataset, timeout_seconds: float) -> tf.data.Dataset:
    """The samples of `_endless`, until one has been asked for longer than the timeout."""

    @_plain
    def watch(since: tf.Tensor, is_sample: tf.Tensor, sample: Any) -> tuple[tf.Tensor, Any]:
        # 0: nobody waits. Not tf.timestamp, which deterministic operations exclude.
        now = tf.cond(
            is_sample,
            _plain(lambda: tf.zeros_like(since)),
            _plain(lambda: tf.ensure_shape(tf.numpy_function(_seconds, (), tf.float64), ())),
        )
        since = tf.where(tf.logical_or(is_sample, tf.equal(since, 0.0)), now, since)
        return since, (now - since >= timeout_seconds, is_sample, sample)

    return (
        endless.scan(tf.constant(0.0, tf.float64), _plain(lambda since, e: watch(since, *e)))
        .take_while(_plain(lambda kept_waiting, *_: tf.logical_not(kept_waiting)))
        .filter(_plain(lambda kept_waiting, is_sample, sample: is_sample))
        .map(_plain(lambda kept_waiting, is_sample, sample: sample))
    )


def _seconds() -> np.float64:
    return np.float64(time.monotonic())
