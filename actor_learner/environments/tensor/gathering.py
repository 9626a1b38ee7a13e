"""A game on a grid: gather gold among foes."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from actor_learner.environments.tensor import dynamics, grid_game
from actor_learner.support import configurable

_APPEARS_EVERY = 3
_MOVES_EVERY = 2


class Gathering(NamedTuple):
    """Where a game of `GatheringDynamics` stands.

    Attributes:
      row: Of the gatherer, int32 `[lanes]`; likewise `column`.
      column: Of the gatherer.
      things: Column of the thing in each of rows 1 to 8, -1 where there is none, `[lanes, 8]`.
      right: Which way each goes, +1 or -1, int32 `[lanes, 8]`.
      gold: Whether each is gold, bool `[lanes, 8]`.
      time: Steps so far, int32 `[lanes]`.
    """

    row: tf.Tensor
    column: tf.Tensor
    things: tf.Tensor
    right: tf.Tensor
    gold: tf.Tensor
    time: tf.Tensor


@configurable.register
class GatheringDynamics(grid_game.GridGame):
    """Gather gold, which is 1 each, and avoid foes: touching one ends the game.

    The gatherer begins in the middle; actions: stay, left, right, up, down, within rows 1 to 8.
    Every third step a thing appears at the edge of a row drawn at random, if that row is free: gold
    with probability 1/3, else a foe. Things cross their row, a cell every second step, and are gone
    behind its end. What is in the gatherer's cell, before or after things move, is met. Channels:
    gatherer, foes, gold, and whatever moves right.
    """

    def __init__(self) -> None:
        super().__init__(num_channels=4, num_actions=5)

    def reset(self, num_lanes: int, seed: tf.Tensor) -> Gathering:
        shape = [num_lanes, grid_game.SIZE - 2]
        return Gathering(
            row=tf.fill([num_lanes], grid_game.SIZE // 2),
            column=tf.fill([num_lanes], grid_game.SIZE // 2),
            things=tf.fill(shape, -1),
            right=tf.ones(shape, tf.int32),
            gold=tf.zeros(shape, tf.bool),
            time=tf.zeros([num_lanes], tf.int32),
        )

    def step(self, state: Gathering, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        time = state.time + 1
        column = tf.clip_by_value(state.column + grid_game.sideways(action), 0, grid_game.SIZE - 1)
        row = tf.clip_by_value(
            state.row + grid_game.sideways(action, plus=4, minus=3), 1, grid_game.SIZE - 2
        )
        things, right, gold = self._appear(state, time, seed)

        here = grid_game.one_hot(row - 1, grid_game.SIZE - 2)
        met = tf.logical_and(here, tf.equal(things, column[:, tf.newaxis]))
        moves = tf.equal(tf.math.floormod(time, _MOVES_EVERY), 0)[:, tf.newaxis]
        moved = tf.where(tf.logical_and(moves, things >= 0), things + right, things)
        met = tf.logical_or(met, tf.logical_and(here, tf.equal(moved, column[:, tf.newaxis])))
        gone = tf.logical_or(met, tf.logical_or(moved < 0, moved >= grid_game.SIZE))
        found = tf.reduce_any(tf.logical_and(met, gold), axis=1)
        caught = tf.reduce_any(tf.logical_and(met, tf.logical_not(gold)), axis=1)
        state = Gathering(row, column, tf.where(gone, -1, moved), right, gold, time)
        return dynamics.Outcome(state, tf.cast(found, tf.float32), caught)

    def _appear(
        self, state: Gathering, time: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Columns, ways and kinds of things after a new one has appeared, if one is due."""
        lanes = tf.shape(time)
        row = tf.random.stateless_uniform(lanes, seed, 0, grid_game.SIZE - 2, tf.int32)
        side = tf.random.stateless_uniform(lanes, dynamics.another(seed, 1), 0, 2, tf.int32)
        kind = tf.random.stateless_uniform(lanes, dynamics.another(seed, 2), 0, 3, tf.int32)
        due = tf.equal(tf.math.floormod(time, _APPEARS_EVERY), 0)[:, tf.newaxis]
        new = tf.logical_and(
            tf.logical_and(grid_game.one_hot(row, grid_game.SIZE - 2), state.things < 0), due
        )
        from_left = tf.equal(side, 0)[:, tf.newaxis]
        return (
            tf.where(new, tf.where(from_left, 0, grid_game.SIZE - 1), state.things),
            tf.where(new, tf.where(from_left, 1, -1), state.right),
            tf.where(new, tf.equal(kind, 0)[:, tf.newaxis], state.gold),
        )

    def _channels(self, state: Gathering) -> list[tf.Tensor]:
        things = grid_game.one_hot(state.things, grid_game.SIZE)  # [lanes, 8, 10]
        edge = tf.zeros_like(things[:, :1])

        def where(flags: tf.Tensor) -> tf.Tensor:
            shown = tf.logical_and(things, flags[:, :, tf.newaxis])
            return tf.concat([edge, shown, edge], axis=1)

        return [
            grid_game.cell(state.row, state.column),
            where(tf.logical_not(state.gold)),
            where(state.gold),
            where(state.right > 0),
        ]
