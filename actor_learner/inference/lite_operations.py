"""Operations of policies that TFLite does not have, in operations that it has."""

from __future__ import annotations

from typing import Any, Callable, Protocol

import tensorflow as tf

from actor_learner.support import errors


class UnconvertibleError(errors.ActorLearnerError):
    """A policy that cannot be run by TFLite; the message ends a sentence about it, with "it"."""


class Builder(Protocol):
    """What builds the new graph."""

    def tensor(self, value: Any) -> tf.Tensor:
        """A value as a tensor of the new graph."""

    def matmul(self, left: Any, right: Any) -> tf.Tensor:
        """The product of two matrices; quicker where the right one is a variable."""

    def matmul_rows(self, lefts: list[tf.Tensor], right: Any) -> tf.Tensor:
        """The product of matrices side by side with a matrix that has rows for all of them."""

    def draw(self, kind: str, shape: Any, dtype: tf.DType, *limits: int) -> tf.Tensor:
        """Random numbers, of a kind of `noise.Draw`."""

    def read(self, value: Any) -> tf.Tensor:
        """The value of a variable."""


def _matmul(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    if not (op.get_attr("transpose_a") or op.get_attr("transpose_b")):
        return [builder.matmul(*inputs)]
    left, right = (builder.tensor(value) for value in inputs)
    return [
        tf.matmul(
            left,
            right,
            transpose_a=op.get_attr("transpose_a"),
            transpose_b=op.get_attr("transpose_b"),
        )
    ]


def _uniform(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    return [builder.draw("uniform", _shape(op), op.outputs[0].dtype)]


def _normal(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    return [builder.draw("normal", _shape(op), op.outputs[0].dtype)]


def _integers(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    limits = [tf.get_static_value(tensor) for tensor in op.inputs[1:]]
    if any(limit is None for limit in limits):
        raise UnconvertibleError(f"it draws integers from a range that varies ({op.name!r})")
    return [builder.draw("integers", _shape(op), op.outputs[0].dtype, *map(int, limits))]


def _multinomial(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    """The largest of logits plus Gumbel noise is a choice with the logits' probabilities."""
    logits, dtype = builder.tensor(inputs[0]), op.outputs[0].dtype
    if tf.get_static_value(op.inputs[1]) != 1 or not logits.shape.is_fully_defined():
        raise UnconvertibleError(f"it draws several choices at once ({op.name!r})")
    noisy = logits + builder.draw("gumbel", logits.shape, tf.float32)
    return [tf.argmax(noisy, axis=-1, output_type=dtype)[:, tf.newaxis]]


def _gather(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    if op.get_attr("batch_dims"):
        raise UnconvertibleError(f"it looks up rows of a variable in batches ({op.name!r})")
    return [tf.gather(builder.read(inputs[0]), builder.tensor(inputs[1]))]


def _block_lstm(builder: Builder, op: tf.Operation, inputs: list[Any]) -> list[Any]:
    """One step of the fused LSTM: matrix products over the same variables."""
    x = builder.tensor(inputs[1])
    if x.shape[0] != 1 or op.get_attr("use_peephole"):
        raise UnconvertibleError(f"its LSTM takes several steps at once ({op.name!r})")
    cell, output = builder.tensor(inputs[2]), builder.tensor(inputs[3])
    gates = builder.matmul_rows([x[0], output], inputs[4]) + builder.tensor(inputs[8])
    i, candidate, forget, out = tf.split(gates, 4, axis=1)
    i, candidate, out = tf.sigmoid(i), tf.tanh(candidate), tf.sigmoid(out)
    forget = tf.sigmoid(forget + op.get_attr("forget_bias"))
    cell = candidate * i + cell * forget
    clip = op.get_attr("cell_clip")
    if clip > 0:
        cell = tf.clip_by_value(cell, -clip, clip)
    squashed = tf.tanh(cell)
    parts = (i, cell, forget, out, candidate, squashed, squashed * out)
    return [part[tf.newaxis] for part in parts]  # [1, lanes, units]


def _shape(op: tf.Operation) -> tf.TensorShape:
    shape = op.outputs[0].shape
    if not shape.is_fully_defined():
        raise UnconvertibleError(f"how many random numbers it draws varies ({op.name!r})")
    return shape


SPECIAL: dict[str, Callable[[Builder, tf.Operation, list[Any]], list[Any]]] = {
    "MatMul": _matmul,
    "RandomUniform": _uniform,
    "RandomStandardNormal": _normal,
    "RandomUniformInt": _integers,
    "Multinomial": _multinomial,
    "ResourceGather": _gather,
    "BlockLSTM": _block_lstm,
}


def refuse_side_effects(graph: tf.Graph, functions: dict[str, Any]) -> None:
    """Refuses policies that do more than compute: what TFLite leaves out would not be done."""
    nodes = [(op.type, op.name) for op in graph.get_operations()]
    nodes += [(node.op, node.name) for f in functions.values() for node in f.node_def]
    for kind, name in nodes:
        if kind.startswith("Assign") or (kind.startswith("Resource") and kind not in SPECIAL):
            raise UnconvertibleError(f"it changes a variable while it acts ({kind} {name!r})")
        if kind in ("EagerPyFunc", "PyFunc", "PyFuncStateless"):
            raise UnconvertibleError(f"it calls Python code from its graph ({name!r})")
