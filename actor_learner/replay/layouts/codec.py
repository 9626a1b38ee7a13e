"""How fields become bytes and bytes become tensors again: what all layouts share.

Reverb's cost is per column and per call, hardly per byte: with all small fields of a step in one
column, the *record*, a row is written two to four times as fast as with one column per field, and
read twice as fast. Fields that are large (images) keep a column of their own, so that they are not
copied once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

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


class Layout(Protocol):
    """What all observers need to know of the items that they write."""

    num_lanes: int

    def signature(self) -> dict[str, tf.TensorSpec]: ...

    def check(self, trajectory: Any, table: str) -> None: ...


class StepCodec:
    """How one step of all lanes stands in Reverb columns: a record per lane, plus large fields.

    Args:
      data_spec: Nest of array or tensor specs of one step of one lane; usually
        `agent.collect_data_spec`, a `Trajectory`.
      num_lanes: Lanes per step.

    Attributes:
      fields: The leaves of a step, in the order of `tree.flatten`.
      large: Paths of those with a column of their own, which is called like them.
      record_dtype: NumPy's structured type of one lane's record; its names are the fields' paths.
    """

    def __init__(self, data_spec: Any, num_lanes: int = 1) -> None:
        self.num_lanes = num_lanes
        self._data_spec = data_spec
        self.fields = fields_of(data_spec)
        self.large = tuple(field.path for field in self.fields if field.is_large)
        packed = [field for field in self.fields if not field.is_large]
        self.record_dtype = np.dtype([(field.path, field.dtype, field.shape) for field in packed])
        self._by_path = {field.path: field for field in self.fields}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the Reverb columns."""
        return (RECORD, *self.large)

    @property
    def record_bytes(self) -> int:
        """Size of one lane's record."""
        return self.record_dtype.itemsize

    def column_specs(self, outer: Sequence[int]) -> dict[str, tf.TensorSpec]:
        """Specs of the columns, `[*outer, ...]`, for a table's signature.

        The record's name carries a digest of the fields, so that two sides whose fields differ do
        not mistake one another's bytes.
        """
        name = f"record_{self.digest()}"
        specs = {RECORD: tf.TensorSpec([*outer, self.record_bytes], tf.uint8, name)}
        for path in self.large:
            field = self._by_path[path]
            specs[path] = tf.TensorSpec([*outer, *field.shape], field.dtype, path)
        return specs

    def zeros(self, outer: Sequence[int]) -> dict[str, np.ndarray]:
        """Columns of zeros, `[*outer, ...]`."""
        return {
            name: np.zeros(spec.shape, spec.dtype.as_numpy_dtype)
            for name, spec in self.column_specs(outer).items()
        }

    def digest(self) -> str:
        """Changes when any field's path, shape or type does."""
        return digest(";".join(f"{f.path}:{f.dtype.str}:{f.shape}" for f in self.fields))

    def pack(self, step: Any) -> dict[str, np.ndarray]:
        """Packs a step, leaves `[lanes, ...]`; the record is new, large fields are the caller's."""
        records = np.empty(self.num_lanes, self.record_dtype)
        columns: dict[str, np.ndarray] = {}
        for field, leaf in zip(self.fields, tree.flatten(step)):
            if field.path in self.large:
                columns[field.path] = leaf
            else:
                records[field.path] = leaf
        columns[RECORD] = records.view(np.uint8).reshape(self.num_lanes, self.record_bytes)
        return columns

    def check(self, step: Any, table: str) -> None:
        """Compares a step, leaves `[lanes, ...]`, with the spec.

        Raises:
          errors.SpecMismatchError: Naming table, field, expected and actual shape and type.
        """
        paths = [_path_name(step, path) for path, _ in tree.flatten_with_path(step)]
        if paths != [field.path for field in self.fields]:
            raise errors.SpecMismatchError(
                f"table '{table}': the structure of a step is {paths}, the spec says "
                f"{[field.path for field in self.fields]}"
            )
        for field, leaf in zip(self.fields, tree.flatten(step)):
            leaf = np.asarray(leaf)
            shape = (self.num_lanes, *field.shape)
            if leaf.shape != shape or leaf.dtype != field.dtype:
                raise errors.SpecMismatchError(
                    f"table '{table}', field '{field.path}': expected {shape} {field.dtype}, got "
                    f"{leaf.shape} {leaf.dtype}; the environment or policy does not follow its spec"
                )

    def view(self, columns: dict[str, np.ndarray], path: str) -> np.ndarray:
        """One field `[..., *shape]` of NumPy columns; a view if the record is contiguous."""
        if path in self.large:
            return columns[path]
        return np.ascontiguousarray(columns[RECORD]).view(self.record_dtype)[..., 0][path]

    def read(self, columns: dict[str, tf.Tensor], path: str) -> tf.Tensor:
        """One field, out of columns whose record is `[..., record_bytes]`."""
        if path in self.large:
            return columns[path]
        field, start = self._by_path[path], self.record_dtype.fields[path][1]
        return decode(columns[RECORD][..., start : start + field.num_bytes], field)

    def unpack(self, columns: dict[str, tf.Tensor]) -> Any:
        """All fields, as a nest like the data spec, in graph mode or eagerly.

        Args:
          columns: Record `[batch, T, record_bytes]`, large fields `[batch, T, ...]`.
        """
        leaves = [self.read(columns, field.path) for field in self.fields]
        return tree.unflatten_as(self._data_spec, leaves)


def digest(text: str) -> str:
    """Twelve hexadecimal digits that change with the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
