"""Windows of rows as items: of all lanes together, or of one lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner.replay.layouts import codec

_STEP = "step"  # Where the step stands in a row, beside the version.


class RowLayout(codec.StepCodec):
    """The columns of a row: those of the step, and the version once for all lanes.

    Args:
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`.
      num_lanes: Lanes per row.
      window: Rows per item.
    """

    def __init__(self, data_spec: Any, num_lanes: int, window: int = 1) -> None:
        super().__init__(data_spec, num_lanes)
        if window < 1:
            raise ValueError(f"a window needs at least 1 row, got {window}")
        self.window = window

    @property
    def columns(self) -> tuple[str, ...]:
        return (codec.RECORD, codec.VERSION, *self.large)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of the table."""
        version = tf.TensorSpec([self.window], tf.int64, codec.VERSION)
        return {**self.column_specs([self.window, self.num_lanes]), codec.VERSION: version}

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes.

        Args:
          trajectory: Nest like the data spec, leaves `[lanes, ...]`.
          version: Train step of the policy that acted.
        """
        columns = self.pack(trajectory)
        columns[codec.VERSION] = np.int64(version)
        return columns


class WindowLayout:
    """The columns of an item, `[window, 1, ...]` each: rows of one lane.

    The version is a field of the record: a column of its own costs 400 bytes of every item.

    Args:
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`.
      num_lanes: Lanes of the steps that are packed.
      window: Rows per item, at least 2: n + 1 for n-step transitions.
    """

    def __init__(self, data_spec: Any, num_lanes: int, window: int = 2) -> None:
        if window < 2:
            raise ValueError(f"a window needs at least 2 rows, got {window}")
        self.window = window
        spec = {_STEP: data_spec, codec.VERSION: tf.TensorSpec([], tf.int64)}
        self.num_lanes = num_lanes
        self._observed = codec.StepCodec(data_spec, num_lanes)
        self._row = codec.StepCodec(spec, num_lanes)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of the table."""
        return self._row.column_specs([self.window, 1])

    def check(self, trajectory: Any, table: str) -> None:
        """Compares a step, leaves `[lanes, ...]`, with the spec; see `StepCodec.check`."""
        self._observed.check(trajectory, table)

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes into columns `[lanes, ...]`."""
        versions = np.full(self.num_lanes, version, np.int64)
        return self._row.pack({_STEP: trajectory, codec.VERSION: versions})

    def unpack(self, columns: dict[str, tf.Tensor]) -> tuple[Any, tf.Tensor]:
        """Sampled columns `[batch, window, 1, ...]` as `(trajectory, version [batch])`."""
        step = self._row.unpack(
            {name: tf.squeeze(column, axis=2) for name, column in columns.items()}
        )
        return step[_STEP], step[codec.VERSION][:, 0]
