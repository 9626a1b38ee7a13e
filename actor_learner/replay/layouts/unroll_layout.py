"""How an unroll of all lanes becomes one cell of the queue, and cells become `Unroll`s again."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.replay.layouts import codec
from actor_learner.support import errors

STATE_PREFIX = "state:"
"""Columns of the policy state; no field of a step has a colon in its path."""


class UnrollLayout:
    """The columns of a cell: T + 1 rows of each lane, lane first, and what an unroll has once.

    Lane first, because batches are: a reader joins cells without moving a byte.

    Args:
      data_spec: `Trajectory` spec of one step of one lane, the agent's `collect_data_spec`. If its
        `policy_info` is a dictionary with the key `experience.STATE`, that part is stored for the
        first row only.
      num_lanes: Lanes per cell.
      unroll_length: T, steps per unroll.
    """

    def __init__(self, data_spec: Any, num_lanes: int, unroll_length: int) -> None:
        if not isinstance(data_spec, trajectory_lib.Trajectory):
            raise errors.SpecMismatchError(
                f"unrolls are made of Trajectory steps, the spec is a {type(data_spec).__name__}"
            )
        self.num_lanes = num_lanes
        self.unroll_length = unroll_length
        self._step_spec, self._state_spec = codec.split_state(data_spec)
        self.step = codec.StepCodec(self._step_spec, num_lanes)
        self._state_columns = [
            f"{STATE_PREFIX}{number}" for number in range(len(tree.flatten(self._state_spec)))
        ]

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of the table; names tell layouts of the same sizes apart."""
        signature = self.step.column_specs([self.num_lanes, self.unroll_length + 1])
        signature[codec.VERSION] = tf.TensorSpec([], tf.int64, codec.VERSION)
        for column, spec in zip(self._state_columns, tree.flatten(self._state_spec)):
            signature[column] = tf.TensorSpec([self.num_lanes, *spec.shape], spec.dtype, column)
        return signature

    def unroll_spec(self) -> experience.Unroll:
        """Specs of one cell's unroll: leaves `[lanes, T + 1, ...]`, its state's `[lanes, ...]`."""
        outer = [self.num_lanes, self.unroll_length + 1]
        step = [tf.TensorSpec([*outer, *field.shape], field.dtype) for field in self.step.fields]
        state = [
            tf.TensorSpec([self.num_lanes, *spec.shape], spec.dtype)
            for spec in tree.flatten(self._state_spec)
        ]
        return experience.Unroll(
            tree.unflatten_as(self._step_spec, step), tree.unflatten_as(self._state_spec, state)
        )

    def buffers(self) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Zeroed columns of one cell, and a view into them for each field of a step.

        The views are `[lanes, T + 1, ...]`, in the order of the step's flattened `Trajectory`. The
        version is not among the columns.
        """
        columns = self.step.zeros([self.num_lanes, self.unroll_length + 1])
        return columns, [self.step.view(columns, field.path) for field in self.step.fields]

    def state_columns(self, state: Any) -> dict[str, np.ndarray]:
        """The policy state, leaves `[lanes, ...]`, as columns."""
        return dict(zip(self._state_columns, tree.flatten(state)))

    def check(self, trajectory: Any, table: str) -> None:
        """Compares a step and its state with the spec.

        Raises:
          errors.SpecMismatchError: If one is missing, or of other shapes or types.
        """
        step, state = codec.split_state(trajectory)
        self.step.check(step, table)
        expected = [
            ((self.num_lanes, *field.shape), field.dtype)
            for field in codec.fields_of(self._state_spec)
        ]
        if expected and isinstance(state, tuple) and not state:
            raise errors.SpecMismatchError(
                f"table '{table}': the policy's info has no key {experience.STATE!r}, which the "
                "agent's collect_data_spec has: the actor runs another policy than the "
                "agent's collect_policy"
            )
        found = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in tree.flatten(state)]
        if found != expected:
            raise errors.SpecMismatchError(
                f"table '{table}': the policy state has leaves {found}, the spec says {expected}"
            )

    def unpack(self, columns: dict[str, tf.Tensor]) -> experience.Unroll:
        """Cells, columns `[cells, lanes, ...]`, as one `Unroll` with batch `cells * lanes`."""
        joined = {
            name: tf.reshape(column, [-1, *column.shape[2:]])
            for name, column in columns.items()
            if name != codec.VERSION
        }
        leaves = [joined[name] for name in self._state_columns]
        state = tree.unflatten_as(self._state_spec, leaves)
        return experience.Unroll(self.step.unpack(joined), state)
