"""How one step of all lanes becomes one row of bytes, and bytes become tensors again."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tree

from actor_learner.replay.layouts import codec

RECORD, VERSION = codec.RECORD, codec.VERSION


class RowLayout:
    """The byte layout of a row: `num_lanes` records, plus large fields, plus the policy version.

    Args:
      data_spec: Nest of array or tensor specs of one step of one lane; usually
        `agent.collect_data_spec`, a `Trajectory`.
      num_lanes: Lanes per row.

    Attributes:
      fields: The leaves of a step, in the order of `tree.flatten`.
      large: Paths of those with a column of their own, which is called like them.
      record_dtype: NumPy's structured type of one lane's record; its names are the fields' paths.
    """

    def __init__(self, data_spec: Any, num_lanes: int) -> None:
        self.num_lanes = num_lanes
        self._data_spec = data_spec
        self.fields = codec.fields_of(data_spec)
        self.large = tuple(field.path for field in self.fields if field.is_large)
        packed = [field for field in self.fields if not field.is_large]
        self.record_dtype = np.dtype([(field.path, field.dtype, field.shape) for field in packed])
        self._by_path = {field.path: field for field in self.fields}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the Reverb columns."""
        return (RECORD, VERSION, *self.large)

    @property
    def record_bytes(self) -> int:
        """Size of one lane's record."""
        return self.record_dtype.itemsize

    def signature(self, window: int) -> dict[str, tf.TensorSpec]:
        """Signature of a table whose items are `window` consecutive rows.

        The record's name carries a digest of the layout, so that two sides whose fields differ do
        not mistake one another's bytes.
        """
        outer = [window, self.num_lanes]
        name = f"record_{self.digest()}"
        signature = {
            RECORD: tf.TensorSpec([*outer, self.record_bytes], tf.uint8, name),
            VERSION: tf.TensorSpec([window], tf.int64, VERSION),
        }
        for path in self.large:
            field = self._by_path[path]
            signature[path] = tf.TensorSpec([*outer, *field.shape], field.dtype, path)
        return signature

    def digest(self) -> str:
        """Changes when any field's path, shape or type does."""
        return codec.digest(codec.describe(self.fields))

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes; the arrays are new, and the caller's.

        Args:
          trajectory: Nest like the data spec, leaves `[lanes, ...]`.
          version: Train step of the policy that acted.
        """
        records = np.empty(self.num_lanes, self.record_dtype)
        columns: dict[str, np.ndarray] = {VERSION: np.int64(version)}
        for field, leaf in zip(self.fields, tree.flatten(trajectory)):
            if field.path in self.large:
                columns[field.path] = leaf
            else:
                records[field.path] = leaf
        columns[RECORD] = records.view(np.uint8).reshape(self.num_lanes, self.record_bytes)
        return columns

    def check(self, trajectory: Any, table: str) -> None:
        """Compares a step with the layout, leaf by leaf; see `codec.check`."""
        codec.check(trajectory, self.fields, self.num_lanes, table)

    def read(self, columns: dict[str, tf.Tensor], path: str) -> tf.Tensor:
        """One field, out of columns whose record is `[..., record_bytes]`."""
        if path in self.large:
            return columns[path]
        field = self._by_path[path]
        start = self.record_dtype.fields[path][1]
        return codec.decode(columns[RECORD][..., start : start + field.num_bytes], field)

    def read_array(self, columns: dict[str, np.ndarray], path: str) -> np.ndarray:
        """One field `[..., lanes, ...]`, out of columns of NumPy arrays."""
        if path in self.large:
            return columns[path]
        records = np.ascontiguousarray(columns[RECORD]).view(self.record_dtype)
        return records[..., 0][path]

    def unpack(self, columns: dict[str, tf.Tensor]) -> Any:
        """All fields, as a nest like the data spec, in graph mode or eagerly.

        Args:
          columns: Record `[batch, T, record_bytes]`, large fields `[batch, T, ...]`.
        """
        leaves = [self.read(columns, field.path) for field in self.fields]
        return tree.unflatten_as(self._data_spec, leaves)
