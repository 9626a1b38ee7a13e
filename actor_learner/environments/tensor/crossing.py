"""A game on a grid: cross a road."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from actor_learner.environments.tensor import dynamics, grid_game
from actor_learner.support import configurable

_WALKERS_COLUMN = 4


class Crossing(NamedTuple):
    """Where a game of `CrossingDynamics` stands.

    Attributes:
      row: Of the walker, int32 `[lanes]`.
      cars: Column of the car in each of rows 1 to 8, int32 `[lanes, 8]`.
      periods: Steps that each car takes for a cell, 1 to 5; negative if it drives left.
      time: Steps so far, int32 `[lanes]`.
    """

    row: tf.Tensor
    cars: tf.Tensor
    periods: tf.Tensor
    time: tf.Tensor


@configurable.register
class CrossingDynamics(grid_game.GridGame):
    """Cross a road of eight cars: 1 each time the other side is reached.

    The walker stays in column 4 and begins in the last row; actions: stay, up, down. A car moves a
    cell when the time is a multiple of its period, and reappears on the other side. A walker whose
    cell a car is in, after both have moved, starts again. Speeds are drawn when an episode begins.
    Channels: walker, cars that drive right, cars that drive left.
    """

    def __init__(self) -> None:
        super().__init__(num_channels=3, num_actions=3)

    def reset(self, num_lanes: int, seed: tf.Tensor) -> Crossing:
        shape = [num_lanes, grid_game.SIZE - 2]
        speed = tf.random.stateless_uniform(shape, seed, 1, 6, tf.int32)
        left = tf.random.stateless_uniform(shape, dynamics.another(seed, 1), 0, 2, tf.int32)
        return Crossing(
            row=tf.fill([num_lanes], grid_game.SIZE - 1),
            cars=tf.random.stateless_uniform(
                shape, dynamics.another(seed, 2), 0, grid_game.SIZE, tf.int32
            ),
            periods=speed * (1 - 2 * left),
            time=tf.zeros([num_lanes], tf.int32),
        )

    def step(self, state: Crossing, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        time = state.time + 1
        row = tf.clip_by_value(
            state.row - grid_game.sideways(action, plus=1, minus=2), 0, grid_game.SIZE - 1
        )
        moves = tf.equal(tf.math.floormod(time[:, tf.newaxis], tf.abs(state.periods)), 0)
        cars = tf.where(moves, state.cars + tf.sign(state.periods), state.cars)
        cars = tf.math.floormod(cars, grid_game.SIZE)
        here = tf.logical_and(
            grid_game.one_hot(row - 1, grid_game.SIZE - 2), tf.equal(cars, _WALKERS_COLUMN)
        )
        across = tf.equal(row, 0)
        again = tf.logical_or(tf.reduce_any(here, axis=1), across)
        row = tf.where(again, grid_game.SIZE - 1, row)
        return dynamics.Outcome(
            Crossing(row, cars, state.periods, time),
            tf.cast(across, tf.float32),
            tf.zeros_like(across),
        )

    def _channels(self, state: Crossing) -> list[tf.Tensor]:
        cars = grid_game.one_hot(state.cars, grid_game.SIZE)  # [lanes, 8, 10]
        pavement = tf.zeros_like(cars[:, :1])
        to_right = tf.logical_and(cars, (state.periods > 0)[:, :, tf.newaxis])
        to_left = tf.logical_and(cars, (state.periods < 0)[:, :, tf.newaxis])
        return [
            grid_game.cell(state.row, tf.fill(tf.shape(state.row), _WALKERS_COLUMN)),
            tf.concat([pavement, to_right, pavement], axis=1),
            tf.concat([pavement, to_left, pavement], axis=1),
        ]
