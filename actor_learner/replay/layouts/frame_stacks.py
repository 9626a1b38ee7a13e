"""Stacked frames, stored once: each row keeps its newest frame, and readers put stacks together.

An observation of the last S frames shares S - 1 of them with the one before. A row stores only the
frame that is new, and, at the start of an episode, how the wrapper filled the frames that did not
exist yet. Where rows are written, every episode's start is checked, and that stacks continue those
before: all of them if frames are the first dimension. If they are the last, comparing costs fifty
times as much, and beyond the first rows each row is checked in one lane, by turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.layouts import codec
from actor_learner.support import errors

FIRST = int(ts.StepType.FIRST)

REPEATED, ZERO = 0, 1
"""How an episode's first stack is filled up: with its newest frame, or with zeros."""

_ROWS_CHECKED_FULLY = 64
"""Where frames are the last dimension, so many rows are checked in all lanes, then one by turns."""


class FrameStack(NamedTuple):
    """A field of the step that holds the latest frames, the newest at the end.

    Attributes:
      path: Where it stands in the trajectory, e.g. `observation/camera`.
      size: Frames per stack, at least 2.
      axis: Dimension of the frames in one lane's array: 0, or the last.
      frame_shape: Shape of one frame.
    """

    path: str
    size: int
    axis: int
    frame_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a whole stack."""
        return (*self.frame_shape[: self.axis], self.size, *self.frame_shape[self.axis :])

    def oldest_first(self, stacks: np.ndarray) -> np.ndarray:
        """`[lanes, ...]` with the frames in dimension 1; a view."""
        return np.moveaxis(stacks, self.axis + 1, 1)

    def newest(self, stacks: np.ndarray) -> np.ndarray:
        """The newest frame of each lane, `[lanes, *frame_shape]`; a view."""
        return self.oldest_first(stacks)[:, -1]


def find(fields: Sequence[codec.Field], size: int | None) -> dict[str, FrameStack]:
    """The observation's fields that hold `size` stacked frames, by path.

    A field does if it has at least two dimensions, the first or else the last of which is `size`.

    Raises:
      errors.ConfigError: If no field does.
    """
    if size is None:
        return {}
    if size < 2:
        raise errors.ConfigError(f"frame_stack must be at least 2 frames, or None, got {size}")
    found = {}
    observation = [field for field in fields if field.path.split("/")[0] == "observation"]
    for field in observation:
        if len(field.shape) < 2 or size not in (field.shape[0], field.shape[-1]):
            continue
        axis = 0 if field.shape[0] == size else len(field.shape) - 1
        frame_shape = tuple(n for i, n in enumerate(field.shape) if i != axis)
        found[field.path] = FrameStack(field.path, size, axis, frame_shape)
    if not found:
        shapes = ", ".join(f"'{field.path}' {field.shape}" for field in observation)
        raise errors.ConfigError(
            f"frame_stack is {size}, but no observation has {size} as its first or last dimension: "
            f"{shapes}. Set it to the number of frames that the environment stacks, or to None"
        )
    return found


class StackWatch:
    """Follows one field's stacks as they are written, and refuses those that are none.

    Args:
      stack: The field.
      table: Named in errors.
      stream: Name of the stream whose setting `frame_stack` is; named in errors.
    """

    def __init__(self, stack: FrameStack, table: str, stream: str = "LaneReplay") -> None:
        self._stack = stack
        self._table = table
        self._stream = stream
        self._turn = 0
        self._previous: np.ndarray | None = None  # [lanes, ...], as given.
        self._expected_types: np.ndarray | None = None

    def reset(self) -> None:
        """The next row need not continue the last one."""
        self._previous = None

    def paddings(
        self, stacks: np.ndarray, step_type: np.ndarray, next_step_type: np.ndarray
    ) -> np.ndarray:
        """Checks one row; says how the stacks of lanes that start an episode are filled up.

        Args:
          stacks: The field, `[lanes, ...]`.
          step_type: `[lanes]`.
          next_step_type: `[lanes]`.

        Returns:
          `[lanes]` uint8, `REPEATED` or `ZERO`; without meaning for lanes amid an episode.

        Raises:
          errors.SpecMismatchError: If a checked lane does not hold the latest frames.
        """
        frames = self._stack.oldest_first(stacks)
        first = step_type == FIRST
        paddings = np.zeros(len(step_type), np.uint8)
        for lane in np.flatnonzero(first).tolist():
            paddings[lane] = self._padding(frames[lane], lane)
        if self._previous is None:
            self._previous = np.array(stacks)
        else:
            previous = self._stack.oldest_first(self._previous)
            for lane in self._lanes_to_check(step_type, ~first):
                if not np.array_equal(frames[lane, :-1], previous[lane, 1:]):
                    self._refuse(lane, "does not hold the last frames of the step before")
            self._previous[...] = stacks
        self._expected_types = np.array(next_step_type)
        return paddings

    def _lanes_to_check(self, step_type: np.ndarray, inside: np.ndarray) -> list[int]:
        lanes = len(step_type)
        chosen = step_type != self._expected_types  # Reset from outside, or another environment.
        self._turn += 1
        # 4 microseconds for each lane of four 84x84 frames; 160 if they are the last dimension.
        if self._stack.axis == 0 or self._turn <= _ROWS_CHECKED_FULLY:
            chosen = np.ones(lanes, bool)
        else:
            chosen[self._turn % lanes] = True
        return np.flatnonzero(chosen & inside).tolist()

    def _padding(self, frames: np.ndarray, lane: int) -> int:
        older, newest = frames[:-1], frames[-1]
        if np.array_equal(older, np.broadcast_to(newest, older.shape)):
            return REPEATED
        if not older.any():
            return ZERO
        self._refuse(
            lane, "starts an episode with frames that are neither zero nor copies of the newest"
        )

    def _refuse(self, lane: int, reason: str) -> None:
        raise errors.SpecMismatchError(
            f"table '{self._table}', field '{self._stack.path}', lane {lane}: the observation is "
            f"not a stack of the latest {self._stack.size} frames along dimension "
            f"{self._stack.axis}, newest last: it {reason}. Set {self._stream}.frame_stack to "
            "the number of frames that the environment stacks, or to None to store observations "
            "whole"
        )


def source_rows(
    newest: tf.Tensor, size: int, row_stride: int, step_type: tf.Tensor, padding: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Which rows hold the frames of a stack.

    Args:
      newest: `[...]` integers, flat indices of the rows whose stacks are wanted.
      size: Frames per stack.
      row_stride: Distance of the flat indices of two consecutive rows of a lane.
      step_type: `[rows]`, by flat index.
      padding: `[rows]`, by flat index.

    Returns:
      `(indices [..., size], blank [..., size])`, oldest frame first; blank frames are zeros.
    """
    index = newest
    blank = tf.zeros_like(newest, tf.bool)
    indices, blanks = [index], [blank]
    for _ in range(size - 1):
        starts = tf.equal(tf.gather(step_type, index), FIRST)
        blank |= starts & tf.equal(tf.gather(padding, index), ZERO)
        index = tf.where(starts, index, index - row_stride)
        indices.append(index)
        blanks.append(blank)
    return tf.stack(indices[::-1], axis=-1), tf.stack(blanks[::-1], axis=-1)


def assemble(
    frames: tf.Tensor, indices: tf.Tensor, blank: tf.Tensor, stack: FrameStack
) -> tf.Tensor:
    """Stacks `[batch, T, ...]` of the frames at `indices`, `[batch, T, size]`.

    Args:
      frames: `[rows, *frame_shape]`.
      indices: Of `source_rows`.
      blank: Of `source_rows`.
      stack: The field.
    """
    picked = tf.gather(frames, indices)  # [batch, T, size, *frame_shape]
    rank = len(stack.frame_shape)

    def blanked() -> tf.Tensor:
        keep = tf.reshape(~blank, tf.concat([tf.shape(blank), [1] * rank], axis=0))
        return tf.where(keep, picked, tf.zeros([], picked.dtype))

    picked = tf.cond(tf.reduce_any(blank), blanked, lambda: picked)
    if stack.axis:
        shape = tf.shape(picked)
        flat = tf.reshape(picked, [-1, stack.size, math.prod(stack.frame_shape)])
        flat = tf.transpose(flat, [0, 2, 1])  # Faster than with all dimensions.
        picked = tf.reshape(flat, tf.concat([shape[:2], stack.frame_shape, [stack.size]], axis=0))
    return tf.ensure_shape(picked, [*indices.shape[:2], *stack.shape])
