"""How fields become bytes and bytes become tensors again: what all layouts share.

Reverb's cost is per column and per call, hardly per byte: with all small fields of a step in one
column, the *record*, a row is written two to four times as fast as with one column per field, and
read twice as fast. Fields that are large (images) keep a column of their own, so that they are not
copied once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from actor_learner import experience
from actor_learner.support import errors

LARGE_FIELD_BYTES = 1024
"""A field of at least this many bytes per lane gets a column of its own."""

RECORD = "record"
VERSION = "version"


class Field(NamedTuple):
    """One leaf of the step.

    Attributes:
      path: Where it stands in the trajectory, e.g. `observation/position`.
      shape: Shape for one lane.
      dtype: NumPy type.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def is_large(self) -> bool:
        return self.num_bytes >= LARGE_FIELD_BYTES


def fields_of(data_spec: Any) -> list[Field]:
    """The leaves of a nest of array or tensor specs, in the order of `tree.flatten`.

    Raises:
      errors.SpecMismatchError: If one holds strings.
    """
    found = []
    for path, spec in tree.flatten_with_path(data_spec):
        name = _path_name(data_spec, path)
        dtype = np.dtype(tf.as_dtype(spec.dtype).as_numpy_dtype)
        if dtype == np.dtype(object):
            raise errors.SpecMismatchError(f"field '{name}' is {spec}: strings cannot be stored")
        found.append(Field(name, tuple(spec.shape), dtype))
    return found


def row_bytes(data_spec: Any) -> int:
    """Bytes of one step of one lane."""
    return sum(field.num_bytes for field in fields_of(data_spec))


def digest(text: str) -> str:
    """Twelve hexadecimal digits that change with the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def describe(fields: Sequence[Field]) -> str:
    """All that a reader must know of the fields, as the text to make a digest of."""
    return ";".join(f"{field.path}:{field.dtype.str}:{field.shape}" for field in fields)


def check(step: Any, fields: Sequence[Field], num_lanes: int, table: str) -> None:
    """Compares a step, leaves `[lanes, ...]`, with its fields.

    Raises:
      errors.SpecMismatchError: Naming table, field, expected and actual shape and type.
    """
    paths = [_path_name(step, path) for path, _ in tree.flatten_with_path(step)]
    expected = [field.path for field in fields]
    if paths != expected:
        raise errors.SpecMismatchError(
            f"table '{table}': the structure of a step is {paths}, the spec says {expected}"
        )
    for field, leaf in zip(fields, tree.flatten(step)):
        leaf = np.asarray(leaf)
        shape = (num_lanes, *field.shape)
        if leaf.shape != shape or leaf.dtype != field.dtype:
            raise errors.SpecMismatchError(
                f"table '{table}', field '{field.path}': expected {shape} {field.dtype}, got "
                f"{leaf.shape} {leaf.dtype}; the environment or policy does not follow its spec"
            )


def decode(raw: tf.Tensor, field: Field) -> tf.Tensor:
    """A field `[..., *shape]` out of its bytes, `[..., num_bytes]` uint8."""
    dtype = tf.as_dtype(field.dtype)
    itemsize = field.dtype.itemsize
    inner = [*field.shape, itemsize] if itemsize > 1 else [*field.shape]
    values = tf.reshape(raw, tf.concat([tf.shape(raw)[:-1], inner], axis=0))
    # `bitcast` knows no booleans; they are stored as bytes 0 and 1.
    values = tf.cast(values, tf.bool) if dtype == tf.bool else tf.bitcast(values, dtype)
    values.set_shape(raw.shape[:-1].concatenate(field.shape))
    return values


def split_state(step: Any) -> tuple[Any, Any]:
    """Takes the policy state, which is stored once per unroll or block, out of a step.

    Args:
      step: A `Trajectory` of arrays or specs, whose `policy_info` may be a dictionary with the key
        `experience.STATE`.

    Returns:
      `(step without the state, state)`; the state is `()` if there is none.
    """
    info = step.policy_info
    if not isinstance(info, Mapping) or experience.STATE not in info:
        return step, ()
    others = {key: value for key, value in info.items() if key != experience.STATE}
    return step._replace(policy_info=others), info[experience.STATE]


def _path_name(nest: Any, path: tuple[Any, ...]) -> str:
    """`path` as text, with the names of named tuples' fields."""
    names: list[str] = []
    for key in path:
        if isinstance(nest, tuple) and hasattr(nest, "_fields"):
            key = nest._fields.index(key) if isinstance(key, str) else key
            names.append(nest._fields[key])
        else:
            names.append(str(key))
        nest = nest[key]
    return "/".join(names)
