"""An LSTM layer that runs a whole sequence as one operation."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

State = tuple[tf.Tensor, tf.Tensor]
"""Output and cell of an LSTM, `[batch, units]` each."""


class Lstm(tf.keras.layers.Layer):
    """LSTM over `[batch, T, features]`, from a given state.

    One fused operation per call replaces the loop over steps of `tf.keras.layers.LSTM`, whose
    operations cost more than their arithmetic for the small networks of reinforcement learning.

    Args:
      units: Size of output and cell.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._units = units

    def build(self, input_shape: Any) -> None:
        units = self._units
        features = int(input_shape[-1])
        # Rows for the features, then for the output of the step before; columns for the gates.
        self._input_kernel = self.add_weight(
            "input_kernel", [features, 4 * units], initializer="glorot_uniform"
        )
        self._recurrent_kernel = self.add_weight(
            "recurrent_kernel", [units, 4 * units], initializer="orthogonal"
        )
        self._bias = self.add_weight("bias", [4 * units], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Runs all steps; returns outputs `[batch, T, units]` and the state after the last one."""
        output, cell = state
        no_peephole = tf.zeros([self._units], inputs.dtype)
        # Not BlockLSTMV2: its registered gradient takes the gates in the order of this one.
        steps = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.shape(inputs, tf.int64)[1],
            x=tf.transpose(inputs, [1, 0, 2]),
            cs_prev=cell,
            h_prev=output,
            w=tf.concat([self._input_kernel, self._recurrent_kernel], axis=0),
            wci=no_peephole,
            wcf=no_peephole,
            wco=no_peephole,
            b=self._bias,
            forget_bias=1.0,
            cell_clip=-1.0,  # None.
            use_peephole=False,
        )
        return tf.transpose(steps.h, [1, 0, 2]), (steps.h[-1], steps.cs[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self._units}
