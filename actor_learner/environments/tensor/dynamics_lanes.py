"""Turns dynamics into lanes of TimeSteps inside a graph: time limits, autoreset, step types."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import specs
from actor_learner.environments.tensor import dynamics as dynamics_lib
from actor_learner.support import errors

_FIRST, _MID, _LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))


class Carry(NamedTuple):
    """What lanes hand on from one step to the next, all in tensors.

    Attributes:
      state: That of the dynamics.
      steps: int32 `[lanes]`, steps taken in the episode.
      ended: bool `[lanes]`, whether the last step was the episode's last.
      seed: int64 `[2]`: what everything random is made of; its second number grows.
    """

    state: dynamics_lib.State
    steps: tf.Tensor
    ended: tf.Tensor
    seed: tf.Tensor


class DynamicsLanes:
    """Steps lanes in the way of `GymnasiumEnvironment`, as pure functions on tensors.

    A lane that ends gives LAST with its true final observation; the next step ignores that lane's
    action and gives FIRST. The discount of LAST is 0 where the episode terminated (even if its time
    was up as well), and `discount` where it was only truncated.

    Args:
      dynamics: The rules.
      num_lanes: Leading dimension of everything.
      max_episode_steps: Time limit; None for that of the dynamics, 0 for none.
      discount: The discount of steps that do not terminate.
    """

    def __init__(
        self,
        dynamics: dynamics_lib.Dynamics,
        num_lanes: int,
        *,
        max_episode_steps: int | None = None,
        discount: float = 1.0,
    ) -> None:
        if max_episode_steps is None:
            max_episode_steps = dynamics.max_episode_steps
        if max_episode_steps is not None and max_episode_steps < 0:
            raise errors.ConfigError(
                f"max_episode_steps is {max_episode_steps}: it must be 0, for no limit, or more"
            )
        self.dynamics = dynamics
        self.num_lanes = num_lanes
        self.observation_spec = specs.space_to_spec(dynamics.observation_space, "observation")
        self.action_spec = specs.space_to_spec(dynamics.action_space, "action", zero_based=True)
        self._limit = max_episode_steps
        self._discount = discount

    def reset(self, seed: tf.Tensor) -> tuple[Carry, ts.TimeStep]:
        """Begins an episode in every lane.

        Args:
          seed: Scalar int64 that decides on everything random from here on.
        """
        lanes = self.num_lanes
        seed = tf.stack([seed, tf.zeros([], tf.int64)])
        state = self.dynamics.reset(lanes, seed)
        carry = Carry(state, tf.zeros([lanes], tf.int32), tf.zeros([lanes], tf.bool), _next(seed))
        return carry, ts.TimeStep(
            tf.fill([lanes], _FIRST),
            tf.zeros([lanes]),
            tf.ones([lanes]),
            self.dynamics.observe(state),
        )

    def step(self, carry: Carry, action: Any) -> tuple[Carry, ts.TimeStep]:
        """Takes one step in every lane; those that gave LAST before are reset instead."""
        fresh_seed = carry.seed
        step_seed = _next(fresh_seed)
        first = carry.ended
        going_on = tf.logical_not(first)
        outcome = self.dynamics.step(carry.state, action, step_seed)
        fresh = self.dynamics.reset(self.num_lanes, fresh_seed)
        state = tf.nest.map_structure(
            lambda new, old: tf.where(_like(first, new), new, old), fresh, outcome.state
        )
        steps = tf.where(first, 0, carry.steps + 1)
        terminated = tf.logical_and(outcome.terminated, going_on)
        ended = terminated
        if self._limit:
            ended = tf.logical_or(terminated, steps >= self._limit)
        step_type = tf.where(first, _FIRST, tf.where(ended, _LAST, _MID))
        reward = tf.where(first, 0.0, tf.cast(outcome.reward, tf.float32))
        discount = tf.where(first, 1.0, tf.where(terminated, 0.0, self._discount))
        return (
            Carry(state, steps, ended, _next(step_seed)),
            ts.TimeStep(step_type, reward, discount, self.dynamics.observe(state)),
        )


def _next(seed: tf.Tensor) -> tf.Tensor:
    return seed + tf.constant([0, 1], tf.int64)


def _like(flags: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Shapes flags `[lanes]` so that they select among `values`, `[lanes, ...]`."""
    return tf.reshape(flags, [-1] + [1] * (values.shape.rank - 1))
