"""Sums over all the replicas that take a train step together, each on its part of the batch.

A train step on parts equals one on the whole batch if three rules are kept, and agents keep them by
the functions here:

- Losses of replicas add up to the mean over the whole batch (`mean`, `loss_divisor`, `share`).
- Gradients are added up before anything else is done to them: checks, clipping (`reduced`).
- Whatever else looks at the whole batch, such as statistics, looks at `total`s.

Replicas are those of a `tf.distribute` strategy in this process, or several processes, which form a
`Group`. Alone there is nothing to add up, and nothing is added to the graph.

Within a process, the losses of replicas are shares that add up, as TF-Agents has it. Processes may
leave a group at any time, so that none knows how many there will be: their losses are means over
their own parts, and their gradients are averaged over those that have contributed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Protocol

import numpy as np
import tensorflow as tf

_context = threading.local()


class Group(Protocol):
    """Processes that take train steps together; all must call `sum` equally often."""

    def sum(self, part: np.ndarray) -> tuple[np.ndarray, int]:
        """Waits for the parts of the others; returns the sum, and how many have contributed."""

    def abandon(self) -> None:
        """Called when a train step of this process has failed, some of its sums being missing."""


@contextlib.contextmanager
def joined(group: Group | None) -> Iterator[None]:
    """Has train steps that are traced in this context, and thread, add up over a group."""
    before = _group()
    _context.group = group
    try:
        yield
    finally:
        _context.group = before


def count() -> int:
    """How many replicas of this process take the train step together."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def are_several() -> bool:
    """Whether others see parts of the same batch."""
    return count() > 1 or _group() is not None


def in_group() -> bool:
    """Whether other processes take the same train steps."""
    return _group() is not None


def total(tensors: Any) -> Any:
    """A nest of tensors, each summed over all replicas; no gradient flows through the sums.

    Must not be called inside of a loop or a branch that is within a replica.
    """
    return _total(tensors)[0]


def whole(shares: Any) -> Any:
    """A nest of numbers of the whole batch, from this replica's shares of them."""
    summed, members = _total(shares)
    return summed if members is None else tf.nest.map_structure(lambda x: x / members, summed)


def reduced(gradients: Sequence[Any]) -> list[Any]:
    """The gradients of the whole batch, from those of a part of it; None stays None."""
    if not are_several():
        return list(gradients)
    # Gradients by rows, as of an embedding, have other rows in each part.
    found = iter(whole([tf.convert_to_tensor(g) for g in gradients if g is not None]))
    return [None if gradient is None else next(found) for gradient in gradients]


def order_of_creation(variable: tf.Variable) -> int:
    """A key that sorts variables alike in all processes that build the same.

    Some of TF-Agents' agents keep theirs in sets, whose order is another one in every process.
    """
    return int(variable._unique_id.rpartition("_")[2])


def mean(values: tf.Tensor) -> tf.Tensor:
    """This replica's share of the mean over the batch, whose parts are equally large."""
    return share(tf.reduce_mean(values))


def share(whole: Any) -> Any:
    """What a replica contributes to a number that all of them know."""
    replicas = count()
    return whole if replicas == 1 else whole / float(replicas)


def loss_divisor(items: tf.Tensor) -> tf.Tensor:
    """What to divide a sum over this part by, to get its share of the mean over the whole batch.

    Args:
      items: How many there are to sum over in this part, a float scalar.
    """
    summed, members = _total(items)
    summed = tf.maximum(summed, 1.0)
    return summed if members is None else summed / members


def in_step(function: Callable[[], Any]) -> None:
    """Calls a function that writes to variables, the same to the copies of all replicas.

    Unlike elsewhere in a replica, it may write within a branch. It must not read anything of this
    replica's part of the batch.
    """
    if count() == 1:
        function()
        return

    def call(_: tf.distribute.Strategy) -> None:
        function()

    tf.distribute.get_replica_context().merge_call(call)


def first_of(value: Any) -> tf.Tensor:
    """What all replicas have alike, as one tensor; to be called outside of them."""
    if count() == 1:
        return value
    return tf.distribute.get_strategy().experimental_local_results(value)[0]


def _group() -> Group | None:
    return getattr(_context, "group", None)


def _total(tensors: Any) -> tuple[Any, tf.Tensor | None]:
    """The sums, and how many processes have contributed; None without a group."""
    group = _group()
    if not are_several():
        return tensors, None
    tensors = tf.nest.map_structure(tf.stop_gradient, tensors)
    if group is None:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors), None
    return _sum_over(group, tensors)


def _in_turn(exchange: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Has a graph exchange in the order of the program, which is the same in all processes.

    By itself TensorFlow keeps that order within one function, but not between what stands in a
    function and in a loop or another function that it calls: only users of a variable are ordered.
    """
    if not tf.inside_function():
        return exchange()
    turn = _turns()
    with tf.control_dependencies([turn.assign_add(1, read_value=False)]):
        found = exchange()
    with tf.control_dependencies([found]):
        turn.assign_add(1, read_value=False)
    return found


@functools.cache
def _turns() -> tf.Variable:
    """The variable that all exchanges of this process use."""
    with tf.init_scope():
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="exchanges")


def _sum_over(group: Group, tensors: Any) -> tuple[Any, tf.Tensor]:
    """One exchange for all tensors of a nest."""
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(tensors)]
    part = tf.concat([tf.reshape(tf.cast(leaf, tf.float32), [-1]) for leaf in leaves], axis=0)

    def exchange(part: np.ndarray) -> np.ndarray:
        summed, members = group.sum(part)
        return np.append(summed, np.float32(members))

    found = _in_turn(lambda: tf.numpy_function(exchange, [part], tf.float32))
    sizes = [tf.size(leaf) for leaf in leaves]
    *summed, members = tf.split(found, [*sizes, 1])
    summed = [
        tf.cast(tf.ensure_shape(tf.reshape(values, tf.shape(leaf)), leaf.shape), leaf.dtype)
        for values, leaf in zip(summed, leaves)
    ]
    return tf.nest.pack_sequence_as(tensors, summed), tf.reshape(members, [])
