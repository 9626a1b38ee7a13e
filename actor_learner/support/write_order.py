"""Has what a graph writes wait for the checks that stand before it in the program.

`tf.debugging.check_numerics` raises when its operation runs, and nothing makes it run before the
weights are changed: TensorFlow orders operations on the same variable only. The functions here add
that order to a graph that was traced, as control edges, which cost next to nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

CHECKS = frozenset({"CheckNumerics", "CheckNumericsV2", "Assert"})
# They may hold both, of which nothing is seen from outside: they wait, and are waited for.
_NESTED = frozenset({"If", "While", "Case", "StatefulPartitionedCall", "PartitionedCall"})
_ASSIGNMENTS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_UPDATES = ("ResourceApply", "ResourceSparseApply")
_CHECKED = "_checked_gradient"


def is_update(operation: tf.Operation) -> bool:
    """Whether it applies a gradient to a variable."""
    return operation.type.startswith(_UPDATES)


def is_assignment(operation: tf.Operation) -> bool:
    """Whether it assigns a value to a variable."""
    return operation.type in _ASSIGNMENTS


def is_write(operation: tf.Operation) -> bool:
    """Whether it changes a variable."""
    return (
        is_assignment(operation)
        or is_update(operation)
        or operation.type.startswith("ResourceScatter")
    )


def is_check(operation: tf.Operation) -> bool:
    """Whether it may fail because a number is not finite, or may hold operations that do."""
    return operation.type in CHECKS or operation.type in _NESTED


def is_checked(operation: tf.Operation) -> bool:
    """Whether the gradient that it applies was checked where it was computed."""
    try:
        return operation.get_attr(_CHECKED)
    except ValueError:
        return False


def operations_from(first: int) -> list[tf.Operation]:
    """The operations of the current graph, in order of creation, without the `first` ones."""
    return tf.compat.v1.get_default_graph().get_operations()[first:]


@contextlib.contextmanager
def checks_come_first(*, gradients: bool = False) -> Iterator[None]:
    """Has writes traced in this context wait for the checks traced in it before them.

    Eagerly, where everything is done in the order of the program, it does nothing.

    Args:
      gradients: The gradients that are applied in it are checked in it.
    """
    if not tf.inside_function():
        yield
        return
    first = len(operations_from(0))
    yield
    operations = operations_from(first)
    order(operations)
    if gradients:
        for operation in filter(is_update, operations):
            operation._set_attr(_CHECKED, attr_value_pb2.AttrValue(b=True))


@tf.autograph.experimental.do_not_convert  # It loops over operations, not in the graph.
def order(operations: Iterable[tf.Operation], after: Any = None) -> tf.Operation | None:
    """Has each write wait for the checks before it.

    Each check waits for the one before it, so that what fails first is what stands first, and a
    write needs to wait for one check only.

    Args:
      operations: In an order in which none depends on a later one.
      after: A check before all of them; None for none.

    Returns:
      The last check.
    """
    for operation in operations:
        check = is_check(operation)
        if after is not None and (check or is_write(operation)):
            if after not in operation.control_inputs:
                operation._add_control_input(after)
        if check:
            after = operation
    return after
