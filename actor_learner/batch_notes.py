"""Keeps the latest batch of a train step, and what was computed from it, for when the step fails.

A graph that fails returns nothing, and its batch is gone. So each train step puts the tensors of
its batch in a resource, all in one variant: two operations, which copy references and no data.

    notes = BatchNotes()
    with notes.over({"reward": reward, ...}):
        batch_notes.note("target", target)  # Anywhere in the agent.
        batch_notes.gauge("q_value", values)
    notes.keep(...)
    notes.read()  # After a failure: {"reward": array, "target": array, ...}
    notes.gauges()  # For a line of metrics: {"q_value": 12.3}
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf

_context = threading.local()


def note(name: str, tensor: tf.Tensor) -> tf.Tensor:
    """Has an error about this train step tell the range of `tensor` as well.

    Outside of a learner it does nothing.

    Returns:
      `tensor`, to be used from here on: inside of a function of the agent's own it is noted before
      anything is computed from it.
    """
    notes = getattr(_context, "notes", None)
    return tensor if notes is None else notes.add(name, tensor)


def gauge(name: str, *tensors: tf.Tensor, reduce: Callable[..., Any] = np.mean) -> None:
    """Has each line of metrics show a number of the latest train step under `name`.

    The train step keeps references to the tensors, and computes nothing; `reduce` is called with
    their values, as arrays, when a line is written. What is gauged several times in one train step,
    as for each of two critics, is averaged. Outside of a learner it does nothing.
    """
    notes = getattr(_context, "notes", None)
    if notes is not None:
        notes.add_gauge(name, tensors, reduce)


class _Kept(NamedTuple):
    """A resource that holds the latest tensors of one layout."""

    handle: tf.Tensor
    names: tuple[str, ...]
    dtypes: tuple[tf.DType, ...]

    def assign(self, tensors: list[tf.Tensor]) -> tf.Operation:
        value = tf.raw_ops.OptionalFromValue(components=tensors)
        return tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)

    def read(self) -> dict[str, np.ndarray]:
        try:
            value = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.variant)
        except tf.errors.FailedPreconditionError:
            return {}  # Nothing was kept yet.
        tensors = tf.raw_ops.OptionalGetValue(
            optional=value, output_types=self.dtypes, output_shapes=[None] * len(self.dtypes)
        )
        return dict(zip(self.names, (tensor.numpy() for tensor in tensors)))


class BatchNotes:
    """What a learner's train steps have noted."""

    def __init__(self) -> None:
        self._kept: dict[Any, _Kept] = {}
        self._batch_layouts: set[Any] = set()
        self._tensors: dict[str, tf.Tensor] = {}
        self._graph: Any = None
        self._reductions: dict[str, tuple[str, Callable[..., Any]]] = {}
        self._gauged: dict[str, tuple[tf.Tensor, ...]] = {}  # In the graph of the batch.
        self._kept_gauges: dict[str, _Kept] = {}

    @contextlib.contextmanager
    def over(self, batch: Mapping[str, tf.Tensor]) -> Iterator[None]:
        """Takes down a batch, and what `note` is called with in this context."""
        self._tensors = dict(batch)
        self._gauged = {}
        self._graph = tf.compat.v1.get_default_graph() if tf.inside_function() else None
        before = getattr(_context, "notes", None)
        _context.notes = self
        try:
            yield
        finally:
            _context.notes = before

    def add(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        if self._graph is None or tensor.graph is self._graph:
            self._tensors[name] = tensor
            return tensor
        # In a function of the agent's own, whose tensors the outer graph cannot reach.
        kept = self._resource((name,), (tensor.dtype,))
        with tf.control_dependencies([kept.assign([tensor])]):
            return tf.identity(tensor)

    def add_gauge(
        self, name: str, tensors: tuple[tf.Tensor, ...], reduce: Callable[..., Any]
    ) -> None:
        """See `gauge`."""
        number = sum(key.split("#")[0] == name for key in self._gauged)
        key = f"{name}#{number}"
        self._reductions[key] = (name, reduce)
        self._gauged[key] = tensors
        if self._graph is not None and tensors[0].graph is not self._graph:
            self._gauge_resource(key, tensors).assign(list(tensors))

    def keep_gauges(self) -> None:
        """Has each run of the graph keep what is gauged in it."""
        for key, tensors in self._gauged.items():
            if tensors[0].graph is self._graph:
                self._gauge_resource(key, tensors).assign(list(tensors))

    def gauges(self) -> dict[str, float]:
        """What the latest train step has gauged, by name; nothing before the first."""
        found: dict[str, list[float]] = {}
        for key, (name, reduce) in self._reductions.items():
            if self._graph is None:
                arrays = [np.asarray(tensor) for tensor in self._gauged.get(key, ())]
            else:
                kept = self._kept_gauges.get(key)
                arrays = [] if kept is None else list(kept.read().values())
            if arrays and arrays[0].size:
                found.setdefault(name, []).append(float(reduce(*arrays)))
        return {name: sum(values) / len(values) for name, values in found.items()}

    def _gauge_resource(self, key: str, tensors: tuple[tf.Tensor, ...]) -> _Kept:
        dtypes = tuple(tensor.dtype for tensor in tensors)
        names = tuple(f"{key}/{i}" for i in range(len(tensors)))
        self._kept_gauges[key] = self._resource(names, dtypes)
        return self._kept_gauges[key]

    @property
    def tensors(self) -> dict[str, tf.Tensor]:
        """What was taken down in the graph of the batch, by name."""
        return self._tensors

    def keep(self, tensors: Mapping[str, tf.Tensor]) -> tf.Operation:
        """Has each run of the graph keep these tensors; returns the operation that does so."""
        names, dtypes = tuple(tensors), tuple(tensor.dtype for tensor in tensors.values())
        self._batch_layouts.add((names, dtypes))
        return self._resource(names, dtypes).assign(list(tensors.values()))

    def read(self) -> dict[str, np.ndarray]:
        """What the latest train step has kept; nothing if that is not certain."""
        if self._graph is None:
            return {name: np.asarray(tensor) for name, tensor in self._tensors.items()}
        if len(self._batch_layouts) > 1:
            return {}  # Of batches of several kinds, nobody knows which one was the last.
        found: dict[str, np.ndarray] = {}
        gauged = {kept.names for kept in self._kept_gauges.values()}
        for kept in self._kept.values():
            if kept.names not in gauged:
                found.update(kept.read())
        return found

    def close(self) -> None:
        """Lets go of the tensors; the graphs that keep some must not be run any more."""
        for kept in self._kept.values():
            tf.raw_ops.DestroyResourceOp(resource=kept.handle, ignore_lookup_error=True)
        self._tensors = {}

    def _resource(self, names: tuple[str, ...], dtypes: tuple[tf.DType, ...]) -> _Kept:
        layout = (names, dtypes)
        if layout not in self._kept:
            with tf.init_scope():
                handle = tf.raw_ops.VarHandleOp(
                    dtype=tf.variant, shape=[], shared_name=f"batch_notes_{uuid.uuid4().hex}"
                )
            self._kept[layout] = _Kept(handle, names, dtypes)
        return self._kept[layout]
