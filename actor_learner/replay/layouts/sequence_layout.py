"""How the steps of an episode become cells of a table, and sampled cells become `Sequence`s.

A lane's steps are gathered into blocks, of which `sequence_length` and `period` are multiples: of
`period` rows, if that divides `sequence_length`. A finished block is one cell: the rows as bytes,
the state of the policy before its first row, and the version of the policy. An item refers to the
last `sequence_length / block_length` cells of a lane, so that overlapping sequences share them.

Of stacked frames a row keeps the newest only, and a block the older ones that its first row had: a
sequence lies within one episode, so that every other stack follows from these.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts

from actor_learner import experience as experience_lib
from actor_learner.replay.layouts import codec, frame_stacks
from actor_learner.support import errors

_START = "start/"  # Prefix of the columns that belong to a block, not to its rows.
_OBSERVATION = "observation"
_OLDER = "older_frames"


class SequenceLayout:
    """The columns of a cell.

    Args:
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`. What its
        `policy_info`, if a dictionary, has under `experience.STATE` is kept once per block.
      num_lanes: Lanes of the actor that writes.
      sequence_length: Rows of a sequence.
      period: Distance of two sequences of an episode, in rows.
      frame_stack: Frames per observation, if it is made of the latest frames; None stores
        observations as they are.
      whole_episodes: Whether an item is a whole episode, of `sequence_length` rows at most.
      padded: Whether such items are filled up to `sequence_length` where they are written; else
        they have as many blocks as the episode, and are filled up where they are read.

    Attributes:
      block_length: Rows of a block.
      observed: The layout of steps as observers get them, without the state.
      stacks: Fields of which a row keeps only the newest frame, by path.

    Raises:
      errors.ConfigError: If `period` is longer than `sequence_length`, or no observation holds so
        many frames.
    """

    def __init__(
        self,
        data_spec: Any,
        num_lanes: int,
        sequence_length: int,
        period: int,
        frame_stack: int | None = None,
        *,
        whole_episodes: bool = False,
        padded: bool = True,
    ) -> None:
        check_lengths(sequence_length, period)
        self.num_lanes = num_lanes
        self.whole_episodes = whole_episodes
        self.padded = padded
        self.sequence_length = sequence_length
        self.period = period
        self.block_length = math.gcd(sequence_length, period)
        self.cells_per_item = sequence_length // self.block_length
        row_spec, state_spec = codec.split_state(data_spec)
        self.observed = codec.StepCodec(row_spec, num_lanes)
        self.stacks = frame_stacks.find(self.observed.fields, frame_stack)
        row_spec, older_spec = self._specs_of_frames(row_spec)
        self.rows = codec.StepCodec(row_spec, num_lanes)
        start_spec = {
            "state": state_spec,
            "version": tf.TensorSpec([], tf.int64),
            _OLDER: older_spec,
        }
        self.start = codec.StepCodec(start_spec, num_lanes)
        self._row_spec = row_spec

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of a table of sequences."""
        cells: Any = self.cells_per_item if self.padded else None
        signature = self.rows.column_specs([cells, self.block_length])
        for name, spec in self.start.column_specs([cells]).items():
            signature[_START + name] = tf.TensorSpec(spec.shape, spec.dtype, _START + spec.name)
        return signature

    def check(self, trajectory: Any, table: str) -> None:
        """Compares a step and its state with the spec; see `StepCodec.check`."""
        step, state = codec.split_state(trajectory)
        self.observed.check(step, table)
        _, older = self.split_frames(step)
        self.start.check(self.start_of(state, 0, older), table)

    def split_frames(self, step: Any) -> tuple[Any, dict[str, np.ndarray]]:
        """Takes the older frames out of a step's stacks; views, nothing is copied.

        Args:
          step: One step of all lanes, without the state.

        Returns:
          `(step with the newest frames only, older frames [lanes, frames, ...] by path)`.
        """
        if not self.stacks:
            return step, {}
        leaves, older = tree.flatten(step), {}
        for index, field in enumerate(self.observed.fields):
            if field.path in self.stacks:
                frames = self.stacks[field.path].oldest_first(leaves[index])
                leaves[index], older[field.path] = frames[:, -1], frames[:, :-1]
        return tree.unflatten_as(step, leaves), older

    def start_of(self, state: Any, version: int, older: dict[str, np.ndarray]) -> dict[str, Any]:
        """What a block keeps of its first row besides the row itself, leaves `[lanes, ...]`."""
        versions = np.full(self.num_lanes, version, np.int64)
        return {"state": state, "version": versions, _OLDER: older}

    def kept_rows(self, column: str) -> int:
        """How many of a lane's latest rows an observer keeps in NumPy.

        Of observations, the block that it fills; of all else a whole sequence, from which the
        priority is computed.
        """
        is_observation = column.split("/")[0] == _OBSERVATION
        return self.block_length if is_observation else self.sequence_length

    def missing_blocks(self, num_blocks: int) -> int:
        """How many blocks an episode that has so many lacks until it ends with a sequence."""
        if num_blocks < self.cells_per_item or self.whole_episodes:
            return self.cells_per_item - num_blocks
        return (self.cells_per_item - num_blocks) % (self.period // self.block_length)

    def padding(self) -> dict[str, np.ndarray]:
        """The rows that fill up a block after an episode's end: zeros that claim to be LAST."""
        padding = self.rows.zeros([self.block_length])
        self.rows.view(padding, "step_type")[...] = ts.StepType.LAST
        self.rows.view(padding, "next_step_type")[...] = ts.StepType.FIRST
        return padding

    def cell(
        self, row_columns: dict[str, np.ndarray], start_columns: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The columns of one cell."""
        return {**row_columns, **{_START + name: start_columns[name] for name in start_columns}}

    def sequences(self, columns: dict[str, np.ndarray]) -> experience_lib.Sequence:
        """Sequences as the actor has them: NumPy, without observations and states.

        Args:
          columns: `[n, sequence_length, ...]`, without those of observations.
        """
        leaves = [
            None
            if field.path.split("/")[0] == _OBSERVATION
            else self.rows.view(columns, field.path)
            for field in self.rows.fields
        ]
        trajectory = tree.unflatten_as(self._row_spec, leaves)._replace(observation=())
        ended = trajectory.step_type == ts.StepType.LAST
        earlier = np.cumsum(ended, axis=1) - ended
        return experience_lib.Sequence(trajectory, (), (earlier == 0).astype(np.float32))

    def fill_up(self, columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """One sampled item, `[cells, ...]`, with as many cells as the longest would have."""
        if self.padded:
            return columns
        padding = self.padding()

        def filled(name: str, column: tf.Tensor) -> tf.Tensor:
            missing = self.cells_per_item - tf.shape(column)[0]
            cell = padding.get(name)
            if cell is None:  # A state, or a version: that of no step.
                cell = np.zeros(column.shape[1:], column.dtype.as_numpy_dtype)
            more = tf.repeat(tf.constant(cell)[tf.newaxis], missing, axis=0)
            return tf.ensure_shape(
                tf.concat([column, more], axis=0), [self.cells_per_item, *column.shape[1:]]
            )

        return {name: filled(name, column) for name, column in columns.items()}

    def unpack(self, columns: dict[str, tf.Tensor]) -> tuple[experience_lib.Sequence, tf.Tensor]:
        """Sampled items as sequences, in graph mode or eagerly.

        Args:
          columns: `[batch, cells, ...]`, as sampled.

        Returns:
          `(sequence, version [batch] int64)`.
        """

        def join(column: tf.Tensor) -> tf.Tensor:  # [batch, cells, block, ...]
            inner = column.shape[3:].as_list()
            return tf.reshape(column, [-1, self.sequence_length, *inner])

        trajectory = self.rows.unpack({name: join(columns[name]) for name in self.rows.columns})
        start = self.start.unpack(
            {name: columns[_START + name][:, 0] for name in self.start.columns}
        )
        ended = tf.cast(tf.equal(trajectory.step_type, ts.StepType.LAST), tf.int32)
        earlier = tf.cumsum(ended, axis=1, exclusive=True)
        mask = tf.cast(tf.equal(earlier, 0), tf.float32)
        if self.stacks:
            trajectory = self._stack_frames(trajectory, start[_OLDER], mask)
        return experience_lib.Sequence(trajectory, start["state"], mask), start["version"]

    def _specs_of_frames(self, row_spec: Any) -> tuple[Any, dict[str, tf.TensorSpec]]:
        """Specs of rows that keep the newest frames, and of the older frames of one row."""
        leaves, older = tree.flatten(row_spec), {}
        for index, field in enumerate(self.observed.fields):
            if field.path in self.stacks:
                stack = self.stacks[field.path]
                leaves[index] = tf.TensorSpec(stack.frame_shape, field.dtype)
                older[field.path] = tf.TensorSpec([stack.size - 1, *stack.frame_shape], field.dtype)
        return tree.unflatten_as(row_spec, leaves), older

    def _stack_frames(self, trajectory: Any, older: dict[str, tf.Tensor], mask: tf.Tensor) -> Any:
        """Puts the stacks together again; rows that fill up a sequence are zero, as without.

        Args:
          trajectory: With the newest frames, `[batch, L, ...]`.
          older: Those before row 0, `[batch, frames, ...]`, by path.
          mask: `[batch, L]`.
        """
        leaves = tree.flatten(trajectory)
        length = self.sequence_length
        for index, field in enumerate(self.observed.fields):
            if field.path not in self.stacks:
                continue
            stack = self.stacks[field.path]
            frames = tf.concat([older[field.path], leaves[index]], axis=1)
            parts = [frames[:, k : k + length] for k in range(stack.size)]
            stacked = tf.stack(parts, axis=2 + stack.axis)  # [batch, L, *stack.shape]
            real = tf.reshape(mask > 0, [-1, length, *[1] * len(stack.shape)])
            leaves[index] = tf.where(real, stacked, tf.zeros([], stacked.dtype))
        return tree.unflatten_as(trajectory, leaves)


def check_lengths(sequence_length: int, period: int) -> None:
    """Refuses lengths of which sequences cannot be, or that leave out steps between two."""
    if period < 1 or sequence_length < 2 or period > sequence_length:
        raise errors.ConfigError(
            f"SequenceReplay.sequence_length is {sequence_length} and period is {period}: "
            "sequences must have 2 steps or more, and begin 1 to sequence_length steps apart"
        )
