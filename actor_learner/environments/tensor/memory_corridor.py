"""MemoryCorridor-v0 in TensorFlow operations; `environments.memory` describes the task."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.environments.tensor import dynamics, pictures
from actor_learner.support import configurable, errors


class Corridor(NamedTuple):
    """Where an episode stands, int32 `[lanes]` each.

    Attributes:
      cue: The symbol to remember.
      delay: Length of the corridor.
      position: Steps since the cue.
      symbol: The distraction that is shown in the corridor.
    """

    cue: tf.Tensor
    delay: tf.Tensor
    position: tf.Tensor
    symbol: tf.Tensor


@configurable.register
class MemoryCorridorDynamics(dynamics.Dynamics):
    """Remember a cue while walking past distractions, then answer with it.

    Args:
      num_cues: Number of symbols, and of actions.
      shortest_delay: Fewest steps of the corridor.
      longest_delay: Most steps of the corridor. An episode takes two steps more.
    """

    def __init__(self, num_cues: int = 4, shortest_delay: int = 6, longest_delay: int = 10) -> None:
        if num_cues < 2:
            raise errors.ConfigError(f"num_cues must be at least 2, got {num_cues}")
        if not 0 <= shortest_delay <= longest_delay:
            raise errors.ConfigError(
                f"the delay goes from shortest_delay ({shortest_delay}) to longest_delay "
                f"({longest_delay}): these must be 0 or more, in this order"
            )
        self._num_cues = num_cues
        self._delays = (shortest_delay, longest_delay)
        self.action_space = gymnasium.spaces.Discrete(num_cues)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (num_cues + 3,))

    def reset(self, num_lanes: int, seed: tf.Tensor) -> Corridor:
        shortest, longest = self._delays
        return Corridor(
            cue=self._symbols(num_lanes, seed),
            delay=tf.random.stateless_uniform(
                [num_lanes], dynamics.another(seed, 1), shortest, longest + 1, tf.int32
            ),
            position=tf.zeros([num_lanes], tf.int32),
            symbol=self._symbols(num_lanes, dynamics.another(seed, 2)),
        )

    def step(self, state: Corridor, action: tf.Tensor, seed: tf.Tensor) -> dynamics.Outcome:
        answering = tf.equal(state.position, state.delay + 1)
        right = tf.logical_and(answering, tf.equal(tf.cast(action, tf.int32), state.cue))
        state = state._replace(
            position=state.position + 1, symbol=self._symbols(tf.size(state.cue), seed)
        )
        return dynamics.Outcome(state, tf.cast(right, tf.float32), answering)

    def observe(self, state: Corridor) -> tf.Tensor:
        shows_cue = tf.equal(state.position, 0)
        in_corridor = tf.logical_and(
            tf.logical_not(shows_cue), tf.less_equal(state.position, state.delay)
        )
        answers = tf.equal(state.position, state.delay + 1)
        shown = tf.where(shows_cue, state.cue, tf.where(in_corridor, state.symbol, -1))
        parts = tf.stack([shows_cue, in_corridor, answers], axis=1)
        return tf.concat([tf.one_hot(shown, self._num_cues), tf.cast(parts, tf.float32)], axis=1)

    def render(self, state: Corridor) -> np.ndarray:
        """Draws the symbols as one row and the flags of cue, corridor and answer as another."""
        lanes = Corridor(*(tf.constant(part)[tf.newaxis] for part in state))
        seen = self.observe(lanes)[0].numpy() > 0.5
        grid = np.zeros((2, max(self._num_cues, 3), 2), np.bool_)
        grid[0, : self._num_cues, 0] = seen[: self._num_cues]
        grid[1, :3, 1] = seen[self._num_cues :]
        return pictures.of_grid(grid)

    def _symbols(self, num_lanes: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([num_lanes], seed, 0, self._num_cues, tf.int32)
