"""Rewrites a traced policy into a pure function of arrays, which TFLite can take over.

Three things in a policy's graph are not functions of its inputs: variables, random numbers, and
operations that only check something. Variables and random numbers become inputs, checks are left
out, and what TFLite has no operation for is said in operations that it has.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from actor_learner.inference import (
    late_arithmetic,
    lite_operations,
    lite_ranges,
    noise,
    traced_policy,
)
from actor_learner.support import counters

UnconvertibleError = lite_operations.UnconvertibleError


class Weight(NamedTuple):
    """A variable that the policy reads, as an input.

    Attributes:
      variable: The variable.
      placeholder: Gets its value.
      transposed: Whether it gets the transposed value, as TFLite's matrix products like it.
    """

    variable: tf.Variable
    placeholder: tf.Tensor
    transposed: bool


class Drawn(NamedTuple):
    """Random numbers that the policy uses, as an input."""

    draw: noise.Draw
    placeholder: tf.Tensor


@dataclasses.dataclass
class LiteGraph:
    """A policy's step as a pure function.

    Attributes:
      graph: Holds all tensors.
      inputs: Placeholders by the position of the leaf in `TracedPolicy`'s inputs; only those whose
        values are used.
      weights: Variables that the policy reads.
      drawn: Random numbers that it uses.
      outputs: In the order of `TracedPolicy`'s: a tensor of the graph, a `Late` to be computed from
        such tensors, or an array that is always the same.
    """

    graph: tf.Graph
    inputs: dict[int, tf.Tensor]
    weights: list[Weight]
    drawn: list[Drawn]
    outputs: list[Any]


class _Read:
    """The value of a variable, not yet in the graph: how it gets there depends on who uses it."""

    def __init__(self, variable: tf.Variable) -> None:
        self.variable = variable


class _Rows(NamedTuple):
    """Variables one above the other, as the kernel of an LSTM: products need not join them."""

    parts: list[_Read]


# They change no value; some hold the gradient back, some check shapes that are static here.
_PASSING = frozenset(
    {
        "Identity",
        "StopGradient",
        "PreventGradient",
        "Snapshot",
        "EnsureShape",
        "CheckNumerics",
        "ReadVariableOp",
    }
)
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_CHECKS = frozenset({"Assert", "NoOp", "Placeholder"})
_CONTROL_FLOW = frozenset({"If", "While", "StatelessIf", "StatelessWhile", "Case"})


def rewrite(traced: traced_policy.TracedPolicy) -> LiteGraph:
    """Makes the pure function of a policy.

    Raises:
      UnconvertibleError: Says what in the policy stands against it.
    """
    try:
        return _Rewriter(traced).result()
    except UnconvertibleError:
        raise
    except Exception as error:
        # Policies of users hold anything: one that we cannot take apart is still one that runs.
        raise UnconvertibleError(
            f"its graph cannot be taken apart ({type(error).__name__}: {error})"
        ) from error


class _Rewriter(lite_operations.Builder):
    def __init__(self, traced: traced_policy.TracedPolicy) -> None:
        self._traced = traced
        self._source = traced.function.graph
        library = self._source.as_graph_def().library
        self._functions = {f.signature.name: f for f in library.function}
        self._weights: dict[tuple[Any, bool], Weight] = {}
        self._drawn: list[Drawn] = []
        self._inputs: dict[int, tf.Tensor] = {}
        self._ranges = lite_ranges.IntegerRanges()
        # As they are now: a variable may have been made for any size.
        self._shapes = {
            v.ref(): tuple(v.shape) if v.shape.is_fully_defined() else counters.read(v).shape
            for variable in self._source.variables
            for v in _parts(variable)
        }
        self._graph = tf.Graph()

    def result(self) -> LiteGraph:
        source = self._source
        lite_operations.refuse_side_effects(source, self._functions)
        with self._graph.as_default():
            values = self._captured()
            num_inputs = len(self._traced.input_specs) + self._traced.num_states
            for position, tensor in enumerate(source.inputs[:num_inputs]):
                values[tensor.ref()] = _Input(position, tensor)
            outputs = [self._finished(v) for v in self._copy(source.outputs, values)]
        return LiteGraph(
            self._graph, self._inputs, list(self._weights.values()), self._drawn, outputs
        )

    def _captured(self) -> dict[Any, Any]:
        """Values of what the graph refers to from outside."""
        variables = {id(part.handle): part for v in self._source.variables for part in _parts(v)}
        values: dict[Any, Any] = {}
        for outer, inner in self._source.captures:
            if inner.dtype != tf.resource:
                values[inner.ref()] = np.asarray(outer)
            elif id(outer) in variables:
                values[inner.ref()] = variables[id(outer)]
            else:
                values[inner.ref()] = _Foreign(outer)
        return values

    def _copy(self, outputs: list[tf.Tensor], values: dict[Any, Any]) -> list[Any]:
        """Values of `outputs`, given those of a graph's inputs."""
        for op in _needed(outputs, values):
            results = self._result_of(op, [values[tensor.ref()] for tensor in op.inputs])
            for tensor, value in zip(op.outputs, results):
                values[tensor.ref()] = value
        return [values[tensor.ref()] for tensor in outputs]

    def _result_of(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        if op.type in _CALLS:
            return self._call(op, inputs)
        if op.type in _CONTROL_FLOW:
            raise UnconvertibleError(f"it branches or loops in its graph ({op.type} {op.name!r})")
        for value in inputs:
            if isinstance(value, _Foreign):
                raise UnconvertibleError(f"it reads {value.outer.name!r}, which is not a variable")
        if op.type in _PASSING:
            value = inputs[0]
            return [_Read(value) if isinstance(value, tf.Variable) else value]
        if op.type == "Const":
            return [tf.make_ndarray(op.get_attr("value"))]
        if any(tensor.dtype == tf.float64 for tensor in (*op.inputs, *op.outputs)):
            late = self._late(op, inputs)
            if late is not None:
                return [late]
        if op.type in ("Reshape", "Transpose") and _changes_nothing(op):
            return [inputs[0]]
        if op.type == "ConcatV2" and tf.get_static_value(op.inputs[-1]) == 0:
            if all(isinstance(value, _Read) for value in inputs[:-1]):
                return [_Rows(inputs[:-1])]
        unclipped = self._ranges.unclipped(op, inputs)
        if unclipped is not None:
            return [unclipped]
        special = lite_operations.SPECIAL.get(op.type)
        if special is not None:
            results = special(self, op, inputs)
        else:
            results = self._plain(op, [self.tensor(value) for value in inputs])
        self._ranges.follow(op, inputs, results)
        return results

    def _plain(self, op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        if op.op_def.is_stateful:
            raise UnconvertibleError(f"TFLite has no equivalent of {op.type} ({op.name!r})")
        attributes = {k: v for k, v in op.node_def.attr.items() if not k.startswith("_")}
        copied = self._graph.create_op(
            op.type,
            inputs,
            [tensor.dtype for tensor in op.outputs],
            name=op.name,
            attrs=attributes,
        )
        return list(copied.outputs)

    def _call(self, op: tf.Operation, inputs: list[Any]) -> list[Any]:
        definition = self._functions[op.get_attr("f").name]
        shapes = [tensor.shape for tensor in op.inputs]
        graph = function_def_to_graph.function_def_to_graph(definition, input_shapes=shapes)
        values = {tensor.ref(): value for tensor, value in zip(graph.inputs, inputs)}
        return self._copy(graph.outputs, values)

    def _late(self, op: tf.Operation, inputs: list[Any]) -> Any:
        """What an operation on float64 comes to: TFLite can hold such numbers, and no more."""
        narrow = _narrow(inputs[0])
        if op.type == "Cast":
            target = op.outputs[0].dtype
            if target == tf.float32 and narrow is not None:
                return self.tensor(narrow)
            if target == tf.float64 and op.inputs[0].dtype == tf.float32:
                tensor = self.tensor(inputs[0])
                return late_arithmetic.of(op, [tensor], narrow=tensor)
        if narrow is not None and op.type in late_arithmetic.MOVING:
            # Moving numbers about and rounding them to float32 can change places.
            attributes = {k: v for k, v in op.node_def.attr.items() if not k.startswith("_")}
            attributes["T"] = tf.compat.v1.AttrValue(type=tf.float32.as_datatype_enum)
            moved = self._graph.create_op(
                op.type,
                [self.tensor(narrow), *[self.tensor(value) for value in inputs[1:]]],
                [tf.float32],
                name=op.name,
                attrs=attributes,
            ).outputs[0]
            if isinstance(inputs[0], _Input) or inputs[0].is_narrow_only:
                return late_arithmetic.narrow_only(moved)
            return late_arithmetic.of(op, [self._argument(v) for v in inputs], narrow=moved)
        if all(isinstance(value, np.ndarray) for value in inputs):
            return None
        return late_arithmetic.of(op, [self._argument(value) for value in inputs])

    def _argument(self, value: Any) -> Any:
        """What a late operation takes: a tensor, another late operation, or an array."""
        is_late = isinstance(value, late_arithmetic.Late)
        if (is_late and value.is_narrow_only) or (
            isinstance(value, _Input) and value.dtype == tf.float64
        ):
            raise UnconvertibleError(
                "it computes with float64 observations without rounding them to float32 first"
            )
        return value if is_late or isinstance(value, np.ndarray) else self.tensor(value)

    def _finished(self, value: Any) -> Any:
        """A value that is an output."""
        tensor = self._argument(value)
        if not isinstance(tensor, tf.Tensor):
            return tensor
        # An input of a TFLite model must not be its output.
        return tf.identity(tensor) if tensor.op.type == "Placeholder" else tensor

    # What `lite_operations` builds with.

    def tensor(self, value: Any) -> tf.Tensor:
        if isinstance(value, tf.Tensor):
            return value
        if isinstance(value, np.ndarray):
            return tf.constant(value)
        if isinstance(value, _Read):
            return self._weight(value.variable, transposed=False)
        if isinstance(value, _Input):
            return self._input(value)
        if isinstance(value, _Rows):
            return tf.concat([self.tensor(part) for part in value.parts], axis=0)
        if isinstance(value, late_arithmetic.Late):
            raise UnconvertibleError("it goes on computing with float64 numbers")
        raise UnconvertibleError(f"it uses {value} itself, not its value")

    def matmul(self, left: Any, right: Any) -> tf.Tensor:
        if isinstance(right, _Read) and right.variable.dtype == tf.float32:
            weight = self._weight(right.variable, transposed=True)
            return tf.matmul(self.tensor(left), weight, transpose_b=True)
        return tf.matmul(self.tensor(left), self.tensor(right))

    def matmul_rows(self, lefts: list[tf.Tensor], right: Any) -> tf.Tensor:
        if isinstance(right, _Rows) and len(right.parts) == len(lefts):
            return tf.add_n([self.matmul(*pair) for pair in zip(lefts, right.parts)])
        return self.matmul(tf.concat(lefts, axis=1), right)

    def draw(self, kind: str, shape: Any, dtype: tf.DType, *limits: int) -> tf.Tensor:
        if kind != "integers" and dtype not in (tf.float32, tf.float64):
            raise UnconvertibleError(
                f"it draws random numbers of {dtype.name}, and only float32 and float64 are drawn"
            )
        draw = noise.Draw(kind, tuple(shape), dtype.as_numpy_dtype, tuple(limits))
        placeholder = tf.compat.v1.placeholder(dtype, shape, name=f"draw_{len(self._drawn)}")
        self._drawn.append(Drawn(draw, placeholder))
        if kind == "integers":
            self._ranges.note(placeholder, limits[0], limits[1] - 1)
        return placeholder

    def read(self, value: Any) -> tf.Tensor:
        if not isinstance(value, tf.Variable):
            raise UnconvertibleError(f"it uses {value}, which is not a variable")
        return self._weight(value, transposed=False)

    def _weight(self, variable: tf.Variable, *, transposed: bool) -> tf.Tensor:
        key = (variable.ref(), transposed)
        if key not in self._weights:
            shape = self._shapes[variable.ref()]
            placeholder = tf.compat.v1.placeholder(
                variable.dtype,
                shape[::-1] if transposed else shape,
                name=f"weight_{len(self._weights)}",
            )
            self._weights[key] = Weight(variable, placeholder, transposed)
        return self._weights[key].placeholder

    def _input(self, value: _Input) -> tf.Tensor:
        if value.position not in self._inputs:
            # TFLite takes float64 in, but does not compute with it.
            dtype = tf.float32 if value.dtype == tf.float64 else value.dtype
            self._inputs[value.position] = tf.compat.v1.placeholder(
                dtype, value.shape, name=f"input_{value.position}"
            )
        return self._inputs[value.position]


class _Input:
    """A leaf of time step or state, not yet in the graph: most are never used."""

    def __init__(self, position: int, tensor: tf.Tensor) -> None:
        self.position = position
        self.dtype = tensor.dtype
        self.shape = tensor.shape


class _Foreign(NamedTuple):
    """Something captured that is neither a variable nor a value."""

    outer: Any


def _parts(variable: tf.Variable) -> list[tf.Variable]:
    """The variable itself, or of one that a strategy mirrors, its copies."""
    try:
        variable.handle  # noqa: B018 - raises where there are several.
    except ValueError:
        return list(variable.values)
    return [variable]


def _narrow(value: Any) -> Any:
    """What stands for a float64 value where it is rounded to float32; None if nothing does."""
    if isinstance(value, _Input):
        return value
    return value.narrow if isinstance(value, late_arithmetic.Late) else None


def _needed(outputs: list[tf.Tensor], values: dict[Any, Any]) -> list[tf.Operation]:
    """The operations that outputs are computed by, given some values, in an order to do it in."""
    ordered: dict[tf.Operation, None] = {}
    pending = [(tensor.op, False) for tensor in reversed(outputs) if tensor.ref() not in values]
    while pending:
        op, inputs_done = pending.pop()
        if op in ordered:
            continue
        if inputs_done:
            ordered[op] = None
            continue
        pending.append((op, True))
        pending.extend((t.op, False) for t in op.inputs if t.ref() not in values)
    return list(ordered)


def _changes_nothing(op: tf.Operation) -> bool:
    before, after = op.inputs[0].shape, op.outputs[0].shape
    if not before.is_fully_defined() or before != after:
        return False
    if op.type == "Reshape":
        return True
    order = tf.get_static_value(op.inputs[1])
    return order is not None and list(order) == list(range(before.rank))
