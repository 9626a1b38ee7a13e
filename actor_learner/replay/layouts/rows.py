"""Rows: one step of all lanes, with the version of the policy that acted."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner.replay.layouts import codec

RECORD, VERSION = codec.RECORD, codec.VERSION


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
        return (RECORD, VERSION, *self.large)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of the table."""
        version = tf.TensorSpec([self.window], tf.int64, VERSION)
        return {**self.column_specs([self.window, self.num_lanes]), VERSION: version}

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes.

        Args:
          trajectory: Nest like the data spec, leaves `[lanes, ...]`.
          version: Train step of the policy that acted.
        """
        columns = self.pack(trajectory)
        columns[VERSION] = np.int64(version)
        return columns
