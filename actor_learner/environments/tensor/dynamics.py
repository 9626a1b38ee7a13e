"""What the author of a tensor environment writes: pure functions of state, action and seed."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from actor_learner.support import errors

State = Any
"""A nest of tensors, every leaf `[lanes, ...]`; what is in it is the author's choice."""


class Outcome(NamedTuple):
    """What one step leads to.

    Attributes:
      state: The next state.
      reward: float32 `[lanes]`.
      terminated: bool `[lanes]`: the episode is over, and nothing would follow it.
    """

    state: State
    reward: tf.Tensor
    terminated: tf.Tensor


class Dynamics(abc.ABC):
    """The rules of an environment, for any number of lanes at once.

    A subclass holds constants and no state: `reset`, `step` and `observe` are traced into graphs
    and must depend on nothing but their arguments. They neither count steps nor end an episode by
    time nor begin the next one: `DynamicsLanes` does that for all.

    ```python
    class Walk(Dynamics):
        observation_space = gymnasium.spaces.Box(-9.0, 9.0, (1,))
        action_space = gymnasium.spaces.Discrete(2)
        max_episode_steps = 100

        def reset(self, num_lanes, seed):
            return tf.random.stateless_uniform([num_lanes], seed, -1.0, 1.0)

        def step(self, state, action, seed):
            state += tf.where(action == 1, 1.0, -1.0)
            return Outcome(state, reward=-tf.abs(state), terminated=tf.abs(state) > 8.0)

        def observe(self, state):
            return state[:, tf.newaxis]
    ```

    Attributes:
      observation_space: Gymnasium space of what one lane shows.
      action_space: Gymnasium space of the action of one lane. Discrete actions are zero-based.
      max_episode_steps: Steps after which an episode is truncated; None for no limit.
    """

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    max_episode_steps: int | None = None

    @abc.abstractmethod
    def reset(self, num_lanes: int, seed: tf.Tensor) -> State:
        """Returns the states that episodes begin with.

        Args:
          num_lanes: How many.
          seed: int64 `[2]`, for `tf.random.stateless_*`; see `another` for further draws.
        """

    @abc.abstractmethod
    def step(self, state: State, action: Any, seed: tf.Tensor) -> Outcome:
        """Takes one step in every lane.

        Args:
          state: Of lanes whose episode is under way. Lanes whose episode is over are stepped, too,
            and the result is discarded: it must not raise.
          action: As `action_space` says, leaves `[lanes, ...]`. Not clipped.
          seed: int64 `[2]`, another one in each step.
        """

    @abc.abstractmethod
    def observe(self, state: State) -> Any:
        """Returns what the states show, as `observation_space` says, leaves `[lanes, ...]`."""

    def render(self, state: Any) -> np.ndarray:
        """Draws one lane, uint8 `[height, width, 3]`, for videos; optional.

        Args:
          state: NumPy, of that lane alone, without the leading dimension.
        """
        raise errors.ConfigError(
            f"{type(self).__name__} cannot be drawn: give it a method "
            "render(state) -> uint8 [height, width, 3]"
        )


def another(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns a seed for a further, independent draw: one per `number` from 1 on."""
    return seed + tf.constant([number << 32, 0], tf.int64)
