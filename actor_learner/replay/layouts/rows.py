"""Rows: one step of all lanes, with the version of the policy that acted."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner.replay.layouts import codec

RECORD, VERSION = codec.RECORD, codec.VERSION


class RowLayout(codec.StepCodec):
    """The columns of a row: those of the step, and the version once for all lanes."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (RECORD, VERSION, *self.large)

    def signature(self, window: int) -> dict[str, tf.TensorSpec]:
        """Signature of a table whose items are `window` consecutive rows."""
        version = tf.TensorSpec([window], tf.int64, VERSION)
        return {**self.column_specs([window, self.num_lanes]), VERSION: version}

    def row(self, trajectory: Any, version: int) -> dict[str, np.ndarray]:
        """Packs one step of all lanes.

        Args:
          trajectory: Nest like the data spec, leaves `[lanes, ...]`.
          version: Train step of the policy that acted.
        """
        columns = self.pack(trajectory)
        columns[VERSION] = np.int64(version)
        return columns
