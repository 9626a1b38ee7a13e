"""Signatures: what a table's items look like, and how data differ from them, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tree

# A nest of TensorSpec, ArraySpec, arrays or anything else with a shape and a dtype.
Nest = Any


def window_signature(
    data_spec: Nest, sequence_length: int | None, num_lanes: int | None = None
) -> Nest:
    """The signature of a table whose items are windows of `data_spec`.

    Args:
      data_spec: Nest of specs of one step of one lane, e.g. `agent.collect_data_spec`.
      sequence_length: Steps of a window, `None` where it varies (episodes).
      num_lanes: Lanes that one item holds side by side; `None` for an item of one lane.

    Returns:
      The nest with leaves of shape `[sequence_length, ...]` or `[sequence_length, num_lanes, ...]`.
    """
    outer = [sequence_length] if num_lanes is None else [sequence_length, num_lanes]
    return tree.map_structure_with_path(lambda path, spec: _leaf_spec(path, spec, outer), data_spec)


def without_time(signature: Nest) -> Nest:
    """The signature of one step of a window; the reverse of `window_signature(spec, n)`.

    Raises:
      ValueError: If a field has no time dimension; the message names it.
    """

    def strip(path, spec):
        if spec.shape.rank is None:
            return tf.TensorSpec(None, spec.dtype)
        if spec.shape.rank == 0:
            raise ValueError(
                f"{format_path(path)} has shape [] and so no time dimension; build the signature "
                f"with signatures.window_signature(data_spec, sequence_length)"
            )
        return tf.TensorSpec(spec.shape[1:], spec.dtype)

    return tree.map_structure_with_path(strip, signature)


def window_lengths(signature: Nest) -> set[int | None]:
    """The lengths of the time dimension that a signature's fields have; None is any length."""
    shapes = [spec.shape for spec in tree.flatten(signature)]
    return {shape[0] if shape.rank else None for shape in shapes}


def flat(nest: Nest) -> list[Any]:
    """The leaves in the order of the table's columns."""
    return tree.flatten(nest)


def is_signature(candidate: Any) -> bool:
    """Whether `candidate` is a nest of TensorSpecs; a table may also have none at all."""
    return candidate is not None and all(
        isinstance(leaf, tf.TensorSpec) for leaf in tree.flatten(candidate)
    )


def describe_mismatch(expected: Nest, actual: Nest) -> list[str]:
    """How `actual` differs from `expected`: one sentence per field, none where it fits.

    Fields are matched by path, so a field under another name is a difference even where shape and
    dtype agree (Reverb itself compares only the flat columns). Tuples and lists are alike.

    Args:
      expected: Nest of specs; unknown dimensions fit any size.
      actual: Nest of specs, arrays or scalars.
    """
    wanted = dict(tree.flatten_with_path(expected))
    given = dict(tree.flatten_with_path(actual))
    lines = [
        f"{format_path(path)}: expected {_describe(spec)}, but there is no such field"
        for path, spec in wanted.items()
        if path not in given
    ]
    lines += [
        f"{format_path(path)}: not expected, but got {_describe(value)}"
        for path, value in given.items()
        if path not in wanted
    ]
    for path, spec in wanted.items():
        if path in given and not _fits(spec, given[path]):
            lines.append(
                f"{format_path(path)}: expected {_describe(spec)}, got {_describe(given[path])}"
            )
    return lines


def format_path(path: tuple) -> str:
    """`("observation", "camera", 0)` as `observation.camera[0]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else str(key)
    return text or "the value itself"


def _leaf_spec(path: tuple, spec: Any, outer: list[int | None]) -> tf.TensorSpec:
    shape, dtype = _shape_and_dtype(spec)
    return tf.TensorSpec(tf.TensorShape(outer).concatenate(shape), dtype, name=format_path(path))


def _shape_and_dtype(leaf: Any) -> tuple[tf.TensorShape, tf.DType]:
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        leaf = np.asarray(leaf)
    return tf.TensorShape(leaf.shape), tf.as_dtype(leaf.dtype)


def _fits(expected: Any, actual: Any) -> bool:
    expected_shape, expected_dtype = _shape_and_dtype(expected)
    shape, dtype = _shape_and_dtype(actual)
    return expected_dtype == dtype and expected_shape.is_compatible_with(shape)


def _describe(leaf: Any) -> str:
    shape, dtype = _shape_and_dtype(leaf)
    if shape.rank is None:
        return f"{dtype.name} of any shape"
    sizes = ", ".join("?" if size is None else str(size) for size in shape.as_list())
    return f"{dtype.name} [{sizes}]"
