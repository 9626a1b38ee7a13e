"""Pipelines from sampled items to batches: as much as possible per batch, as little per item."""

from __future__ import annotations

from typing import Any, Callable

import reverb
import tensorflow as tf


def sampler_dataset(
    server_address: str, table: str, data_spec: Any, sequence_length: int | None, **options: int
) -> tf.data.Dataset:
    """Items as `ReplaySample`: data `[T, ...]` like `data_spec`, info of scalars.

    Iterating waits for the server, and for the rate limiter unless `rate_limiter_timeout_ms` is
    among the `options`, which are those of `reverb.TrajectoryDataset`.
    """
    shapes = tf.nest.map_structure(
        lambda spec: tf.TensorShape([sequence_length]).concatenate(spec.shape), data_spec
    )
    dtypes = tf.nest.map_structure(lambda spec: tf.as_dtype(spec.dtype), data_spec)
    return reverb.TrajectoryDataset(server_address, table, dtypes, shapes, **options)


def repeat_info(sample: reverb.ReplaySample, num_outer: int) -> reverb.ReplaySample:
    """Repeats the info of each item for each of its steps.

    `num_outer` is the number of dimensions before the time dimension: 0 for an item, whose info
    becomes `[T]`; 1 for a batch, whose info becomes `[B, T]`.
    """
    first = tf.nest.flatten(sample.data)[0]
    length = first.shape[num_outer]
    if length is None:
        length = tf.shape(first)[num_outer]
    info = tf.nest.map_structure(
        lambda field: tf.repeat(tf.expand_dims(field, -1), length, axis=-1), sample.info
    )
    return reverb.ReplaySample(info, sample.data)


def split_rows(nest: Any, num_steps: int) -> Any:
    """Cuts `[T, ...]` into `[T // num_steps, num_steps, ...]`, dropping the steps that are left."""
    first = tf.nest.flatten(nest)[0]
    length = tf.compat.dimension_value(first.shape[0])
    static_rows = None if length is None else length // num_steps
    rows = tf.shape(first)[0] // num_steps if static_rows is None else static_rows

    def cut(tensor):
        kept = tensor[: rows * num_steps]
        cut_tensor = tf.reshape(kept, tf.concat([[rows, num_steps], tf.shape(tensor)[1:]], 0))
        cut_tensor.set_shape([static_rows, num_steps, *tensor.shape[1:]])
        return cut_tensor

    return tf.nest.map_structure(cut, nest)


def whole_items(
    samples: tf.data.Dataset, batch_size: int | None, num_parallel_calls: int | None
) -> tf.data.Dataset:
    """(data, info) of whole items, `[T, ...]` or `[B, T, ...]`, with one map per batch."""
    if batch_size:
        samples = samples.batch(batch_size, drop_remainder=True)

    def unpack(sample):
        sample = repeat_info(sample, 1 if batch_size else 0)
        return sample.data, sample.info

    return samples.map(unpack, num_parallel_calls=num_parallel_calls)


def split_items(
    samples: tf.data.Dataset,
    num_steps: int,
    batch_size: int | None,
    shuffle: bool,
    num_parallel_calls: int | None,
) -> tf.data.Dataset:
    """(data, info) of rows of `num_steps`, cut from items of one known length.

    As many items as a batch has rows are cut together. With `shuffle` their rows are mixed before
    they are dealt into batches, so that a batch is not made of neighbours.
    """

    def cut_batch(tensor):  # [items, T, ...] to [rows, num_steps, ...]
        rows = tf.reshape(tensor, tf.concat([[-1, num_steps], tf.shape(tensor)[2:]], 0))
        rows.set_shape([None, num_steps, *tensor.shape[2:]])
        return rows

    def cut(sample):
        sample = repeat_info(sample, 1)
        joined = tf.nest.map_structure(cut_batch, (sample.data, sample.info))
        if not shuffle:
            return joined
        order = tf.random.shuffle(tf.range(tf.shape(tf.nest.flatten(joined)[0])[0]))
        return tf.nest.map_structure(lambda t: tf.gather(t, order), joined)

    pool = batch_size if shuffle and batch_size else 1
    rows = samples.batch(pool, drop_remainder=True).map(cut, num_parallel_calls=num_parallel_calls)
    if not batch_size:
        return rows.unbatch()
    return rows.rebatch(batch_size, drop_remainder=True)


def mapped_items(
    samples: tf.data.Dataset,
    sequence_fn: Callable[[Any], Any] | None,
    num_steps: int | None,
    batch_size: int | None,
    shuffle_size: int,
    num_parallel_calls: int | None,
) -> tf.data.Dataset:
    """(data, info) item by item: for a function of the sequence, or items of unknown length.

    Args:
      samples: Items as `ReplaySample`.
      sequence_fn: Maps data `[T, ...]`, before any cut; it may change T.
      num_steps: Cuts sequences into rows of so many steps, if given.
      batch_size: Rows, or sequences, per batch, if given.
      shuffle_size: Rows to mix; 0 keeps their order.
      num_parallel_calls: Sequences that are mapped at the same time.
    """

    def prepare(sample):
        sample = repeat_info(sample, 0)
        data = sequence_fn(sample.data) if sequence_fn else sample.data
        both = (data, sample.info)
        return split_rows(both, num_steps) if num_steps else both

    dataset = samples.map(prepare, num_parallel_calls=num_parallel_calls)
    if num_steps:
        dataset = dataset.unbatch()
        if shuffle_size:
            dataset = dataset.shuffle(shuffle_size)
    return dataset.batch(batch_size, drop_remainder=True) if batch_size else dataset
