"""How one step of all lanes becomes one row of bytes, and bytes become tensors again.

Reverb's cost is per column and per call, hardly per byte: a row with all small fields of a step in
one column is written two to four times as fast as one column per field, and read twice as fast.
Fields that are large (images) keep a column of their own, so that they are not copied once more.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

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
      column: Name of the Reverb column that holds it.
      offset: First byte within the record, for fields in the record column.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    column: str
    offset: int

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class RowLayout:
    """The byte layout of a row: `num_lanes` records, plus large fields, plus the policy version.

    Args:
      data_spec: Nest of array or tensor specs of one step of one lane; usually
        `agent.collect_data_spec`, a `Trajectory`.
      num_lanes: Lanes per row.

    Attributes:
      fields: The leaves of a step, in the order of `tree.flatten`.
      record_bytes: Size of one lane's record.
      record_dtype: NumPy's structured type of a record; its names are the fields' paths.
    """

    def __init__(self, data_spec: Any, num_lanes: int) -> None:
        self.num_lanes = num_lanes
        self._data_spec = data_spec
        self.fields = _fields(data_spec)
        packed = [field for field in self.fields if field.column == RECORD]
        self.record_bytes = sum(field.num_bytes for field in packed)
        self.record_dtype = np.dtype(
            {
                "names": [field.path for field in packed],
                "formats": [(field.dtype, field.shape) for field in packed],
                "offsets": [field.offset for field in packed],
                "itemsize": self.record_bytes,
            }
        )
        self._by_path = {field.path: field for field in self.fields}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the Reverb columns, in the order of `row`."""
        large = [field.column for field in self.fields if field.column != RECORD]
        return (RECORD, VERSION, *large)

    def signature(self, window: int) -> dict[str, tf.TensorSpec]:
        """Signature of a table whose items are `window` consecutive rows.

        The record's name carries a digest of the layout, so that two sides whose fields differ do
        not mistake one another's bytes.
        """
        lanes = self.num_lanes
        signature = {
            RECORD: tf.TensorSpec(
                [window, lanes, self.record_bytes], tf.uint8, f"record_{self.digest()}"
            ),
            VERSION: tf.TensorSpec([window], tf.int64, VERSION),
        }
        for field in self.fields:
            if field.column != RECORD:
                shape = [window, lanes, *field.shape]
                signature[field.column] = tf.TensorSpec(shape, field.dtype, field.column)
        return signature

    def digest(self) -> str:
        """Twelve hexadecimal digits that change when any field's path, shape or type does."""
        text = ";".join(f"{field.path}:{field.dtype.str}:{field.shape}" for field in self.fields)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes; the arrays are new, and the caller's.

        Args:
          trajectory: Nest like the data spec, leaves `[lanes, ...]`.
          version: Train step of the policy that acted.
        """
        records = np.empty(self.num_lanes, self.record_dtype)
        columns: dict[str, np.ndarray] = {VERSION: np.int64(version)}
        leaves = tree.flatten(trajectory)
        for field, leaf in zip(self.fields, leaves):
            if field.column == RECORD:
                records[field.path] = leaf
            else:
                columns[field.column] = leaf
        columns[RECORD] = records.view(np.uint8).reshape(self.num_lanes, self.record_bytes)
        return columns

    def check(self, trajectory: Any, table: str) -> None:
        """Compares a step with the layout, leaf by leaf.

        Raises:
          errors.SpecMismatchError: Naming table, field, expected and actual shape and type.
        """
        paths = [_path_name(trajectory, path) for path, _ in tree.flatten_with_path(trajectory)]
        expected = [field.path for field in self.fields]
        if paths != expected:
            raise errors.SpecMismatchError(
                f"table '{table}': the structure of a step is {paths}, the spec says {expected}"
            )
        for field, leaf in zip(self.fields, tree.flatten(trajectory)):
            leaf = np.asarray(leaf)
            shape = (self.num_lanes, *field.shape)
            if leaf.shape != shape or leaf.dtype != field.dtype:
                raise errors.SpecMismatchError(
                    f"table '{table}', field '{field.path}': expected {shape} {field.dtype}, got "
                    f"{leaf.shape} {leaf.dtype}; the environment or policy does not follow its spec"
                )

    def read(self, columns: dict[str, tf.Tensor], path: str) -> tf.Tensor:
        """One field, out of columns whose record is `[..., record_bytes]`."""
        field = self._by_path[path]
        if field.column != RECORD:
            return columns[field.column]
        return _decode(columns[RECORD], field)

    def read_array(self, columns: dict[str, np.ndarray], path: str) -> np.ndarray:
        """One field `[lanes, ...]`, out of the columns of one row, as NumPy arrays."""
        field = self._by_path[path]
        if field.column != RECORD:
            return columns[field.column]
        records = np.ascontiguousarray(columns[RECORD]).view(self.record_dtype)
        return records[..., 0][path]

    def unpack(self, columns: dict[str, tf.Tensor]) -> Any:
        """All fields, as a nest like the data spec, in graph mode or eagerly.

        Args:
          columns: Record `[batch, T, record_bytes]`, large fields `[batch, T, ...]`.
        """
        leaves = [self.read(columns, field.path) for field in self.fields]
        return tree.unflatten_as(self._data_spec, leaves)


def _fields(data_spec: Any) -> list[Field]:
    fields = []
    offset = 0
    for path, spec in tree.flatten_with_path(data_spec):
        name = _path_name(data_spec, path)
        dtype = np.dtype(tf.as_dtype(spec.dtype).as_numpy_dtype)
        if dtype == np.dtype(object):
            raise errors.SpecMismatchError(f"field '{name}' is {spec}: strings cannot be stored")
        field = Field(name, tuple(spec.shape), dtype, RECORD, offset)
        if field.num_bytes >= LARGE_FIELD_BYTES:
            fields.append(field._replace(column=name, offset=0))
        else:
            fields.append(field)
            offset += field.num_bytes
    return fields


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


def _decode(record: tf.Tensor, field: Field) -> tf.Tensor:
    part = record[..., field.offset : field.offset + field.num_bytes]
    outer = tf.shape(part)[:-1]
    static_outer = part.shape[:-1]
    dtype = tf.as_dtype(field.dtype)
    itemsize = field.dtype.itemsize
    inner = list(field.shape) + ([itemsize] if itemsize > 1 else [])
    part = tf.reshape(part, tf.concat([outer, inner], axis=0))
    # `bitcast` knows no booleans; they are stored as bytes 0 and 1.
    part = tf.cast(part, tf.bool) if dtype == tf.bool else tf.bitcast(part, dtype)
    part.set_shape(static_outer.concatenate(list(field.shape)))
    return part
