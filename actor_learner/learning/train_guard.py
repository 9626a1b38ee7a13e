"""Has a traced train step write nothing unless losses and gradients are finite, and keep its batch.

Our own agents check each loss and gradient where it is computed, and TF-Agents' agents their
losses. For other agents and optimizers, checks are added here to what they apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from actor_learner import batch_notes
from actor_learner.support import write_order

# What optimizers' operations call the gradient that they apply.
_GRADIENTS = ("grad", "delta")


# AutoGraph would convert every call made here, thousands of them: a second for each graph.
@tf.autograph.experimental.do_not_convert
def guard(first: int, losses: Sequence[Any], notes: batch_notes.BatchNotes) -> tf.Operation | None:
    """Puts the operations of a train step, on all replicas, in order.

    Agents raise the train step without looking at the batch, so that a graph may do so long before
    it comes: a dataset that reads the step, or a checkpoint saved while the learner waits, would
    meet the next one's number. What is written therefore waits for the batch, too. Control
    dependencies for everything would do as well, but constants that have one are no longer folded,
    and a small train step takes a third longer.

    Args:
      first: How many operations the graph had before.
      losses: The losses that were returned, one per replica.
      notes: The batch, and what was noted meanwhile.

    Returns:
      The check that whatever is written after this train step has to wait for; None if nothing was
      checked.
    """
    index = {operation: i for i, operation in enumerate(write_order.operations_from(0))}
    made = write_order.operations_from(first)
    # Operations were created in an order in which none depends on a later one. A check that is
    # added now stands right behind what it checks.
    places = {operation: float(index[operation]) for operation in made}
    for tensor, what in _unchecked(made, losses):
        check = _check_later(tensor, f"{what} is not finite")
        places[check] = index[tensor.op] + 0.5
    in_order = sorted(places, key=places.get)
    last = write_order.order(in_order)
    _keep(notes, index, places, in_order)
    notes.keep_gauges()
    for tensor in list(notes.tensors.values())[:1]:
        for operation in in_order:
            if write_order.is_assignment(operation) and not operation.control_inputs:
                operation._add_control_input(tensor.op)
    return last


def _unchecked(made: list[tf.Operation], losses: Sequence[Any]) -> list[tuple[tf.Tensor, str]]:
    """The losses and what is applied, as far as the agent has not checked them itself."""
    found = []
    if not any(operation.type in write_order.CHECKS for operation in made):
        found += [loss for loss in losses if tf.is_tensor(loss)]
    num_losses = len(found)
    updates = [operation for operation in made if write_order.is_update(operation)]
    for update in updates:
        if not write_order.is_checked(update):
            arguments = zip(update.op_def.input_arg, update.inputs)
            found += [tensor for argument, tensor in arguments if argument.name in _GRADIENTS]
    if not updates:
        # Keras' newer optimizers, for example, assign what they have computed.
        found += [o.inputs[1] for o in made if write_order.is_assignment(o)]
    unique = {}
    for i, tensor in enumerate(found):
        if tensor.dtype.is_floating and tensor.op.type != "Const":
            value = f"a gradient or new value ({tensor.op.name})"
            unique.setdefault(id(tensor), (tensor, "the loss" if i < num_losses else value))
    return list(unique.values())


def _check_later(tensor: tf.Tensor, message: str) -> tf.Operation:
    """An operation that fails unless the tensor is finite.

    Inside of a function that counts as free of side effects: TensorFlow would have a check of its
    own wait for all that were made before, some of which have to wait for it.
    """
    check = tf.function(lambda value: tf.debugging.check_numerics(value, message), autograph=False)
    traced = check.get_concrete_function(tf.TensorSpec(None, tensor.dtype))
    traced.add_to_graph(tensor.graph)
    (checked,) = tf.raw_ops.PartitionedCall(args=[tensor], Tout=[tensor.dtype], f=traced.name)
    return checked.op


def _keep(
    notes: batch_notes.BatchNotes,
    index: dict[tf.Operation, int],
    places: dict[tf.Operation, float],
    in_order: list[tf.Operation],
) -> None:
    """Has the batch kept before the first operation that may fail.

    That is the first check of the agent's own; only without any may it be in a function. Graphs
    with summaries and without must agree on it, and summaries are functions, too.
    """
    own = [o for o in in_order if o.type in write_order.CHECKS and o in index]
    failing = own or [o for o in in_order if write_order.is_check(o)]
    before = places[failing[0]] if failing else float("inf")
    known = {name: t for name, t in notes.tensors.items() if index[t.op] < before}
    if known:
        kept = notes.keep(known)
        for operation in failing[:1]:  # The others wait for it.
            operation._add_control_input(kept)
