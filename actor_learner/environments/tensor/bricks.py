"""A game on a grid: break bricks with a ball."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from actor_learner.environments.tensor import dynamics, grid_game
from actor_learner.support import configurable

_BRICK_ROWS = 3


class Bricks(NamedTuple):
    """Where a game of `BricksDynamics` stands.

    Attributes:
      row: Of the ball, int32 `[lanes]`; likewise `column`.
      column: Of the ball.
      down: Which way it goes, +1 or -1, int32 `[lanes]`; likewise `right`.
      right: See `down`.
      paddle: Its column, int32 `[lanes]`.
      wall: Which bricks are left, bool `[lanes, 3, 10]`.
    """

    row: tf.Tensor
    column: tf.Tensor
    down: tf.Tensor
    right: tf.Tensor
    paddle: tf.Tensor
    wall: tf.Tensor


@configurable.register
class BricksDynamics(grid_game.GridGame):
    """Keep a ball in the air and break bricks with it: 1 for each; over when the ball is missed.

    The bricks are rows 1 to 3, the paddle is a cell of the last row; actions: stay, left, right.
    The ball moves one cell diagonally in each step. Walls and ceiling reflect it. A brick breaks
    and turns it round vertically; so does the paddle if it is where the ball would come down. All
    bricks are back once the last one is broken and the ball is below them.
    Channels: paddle, ball, bricks.
    """

    def __init__(self) -> None:
        super().__init__(num_channels=3, num_actions=3)

    def reset(self, num_lanes: int, seed: tf.Tensor) -> Bricks:
        left = tf.random.stateless_uniform([num_lanes], dynamics.another(seed, 1), 0, 2, tf.int32)
        return Bricks(
            row=tf.fill([num_lanes], _BRICK_ROWS + 1),
            column=tf.random.stateless_uniform([num_lanes], seed, 0, grid_game.SIZE, tf.int32),
            down=tf.ones([num_lanes], tf.int32),
            right=1 - 2 * left,
            paddle=tf.fill([num_lanes], grid_game.SIZE // 2),
            wall=tf.ones([num_lanes, _BRICK_ROWS, grid_game.SIZE], tf.bool),
        )

    def step(self, state: Bricks, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        paddle = tf.clip_by_value(state.paddle + grid_game.sideways(action), 0, grid_game.SIZE - 1)
        out = tf.logical_or(
            state.column + state.right < 0, state.column + state.right >= grid_game.SIZE
        )
        right = tf.where(out, -state.right, state.right)
        column = state.column + right
        at_ceiling = state.row + state.down < 0
        down = tf.where(at_ceiling, 1, state.down)
        row = state.row + down

        cells = tf.logical_and(
            grid_game.one_hot(row - 1, _BRICK_ROWS)[:, :, tf.newaxis],
            grid_game.one_hot(column, grid_game.SIZE)[:, tf.newaxis],
        )
        struck = tf.logical_and(cells, state.wall)  # [lanes, 3, 10], one cell at most
        breaks = tf.reduce_any(struck, axis=[1, 2])
        wall = tf.logical_and(state.wall, tf.logical_not(struck))
        lands = tf.equal(row, grid_game.SIZE - 1)
        caught = tf.logical_and(lands, tf.equal(column, paddle))
        returned = tf.logical_or(breaks, caught)
        row = tf.where(returned, state.row, row)
        down = tf.where(returned, -down, down)

        cleared = tf.logical_not(tf.reduce_any(wall, axis=[1, 2]))
        rebuilt = tf.logical_and(cleared, row > _BRICK_ROWS)
        wall = tf.logical_or(wall, rebuilt[:, tf.newaxis, tf.newaxis])
        missed = tf.logical_and(lands, tf.logical_not(caught))
        return dynamics.Outcome(
            Bricks(row, column, down, right, paddle, wall), tf.cast(breaks, tf.float32), missed
        )

    def _channels(self, state: Bricks) -> list[tf.Tensor]:
        above = tf.zeros_like(state.wall[:, :1])
        below = tf.zeros_like(tf.tile(above, [1, grid_game.SIZE - 1 - _BRICK_ROWS, 1]))
        return [
            grid_game.cell(tf.fill(tf.shape(state.paddle), grid_game.SIZE - 1), state.paddle),
            grid_game.cell(state.row, state.column),
            tf.concat([above, state.wall, below], axis=1),
        ]
