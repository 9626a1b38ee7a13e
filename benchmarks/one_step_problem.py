"""A problem of one step, the same whatever the bounds of its actions, for agents to be compared on.

The agent sees a vector and is rewarded for how near its action, in units of half its range, comes
to a linear function of it. Each episode has one step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.agents import algorithm, bc, cql_sac, ddpg, ppo, sac, td3
from actor_learner.inference import graph

BATCH = 128
OBSERVATION = tensor_spec.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)

_LAYERS = {"actor_fc_layer_params": (32,), "critic_fc_layer_params": (32, 32)}
_RATES = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3}
_SOFT = {**_LAYERS, **_RATES, "alpha_learning_rate": 3e-2, "initial_alpha": 0.1}
AGENTS: dict[str, tuple[Callable[..., algorithm.Algorithm], dict[str, Any]]] = {
    "sac": (sac.sac, _SOFT),
    "cql_sac": (cql_sac.cql_sac, {**_SOFT, "cql_alpha": 0.1}),
    "td3": (td3.td3, {**_LAYERS, **_RATES}),
    "ddpg": (ddpg.ddpg, {**_LAYERS, **_RATES}),
    "bc": (bc.bc, {"fc_layer_params": (32,), "learning_rate": 3e-3}),
    "ppo": (ppo.ppo, {"fc_layer_params": (32,), "learning_rate": 3e-3, "minibatch_size": BATCH}),
}


class Learning:
    """An agent, and the problem that it learns.

    It acts while it learns, except where it learns from others' actions: `bc` from those that are
    best, `cql_sac` from random ones.

    Args:
      name: Of `AGENTS`.
      low: Lower bounds of the action, a number or one for each element.
      high: Upper bounds.
      dtype: Of the action.
      seed: Of everything random.
    """

    def __init__(
        self, name: str, low: Any, high: Any, dtype: tf.DType = tf.float32, seed: int = 0
    ) -> None:
        low, high = np.atleast_1d(low), np.atleast_1d(high)
        spec = tensor_spec.BoundedTensorSpec(low.shape, dtype, low, high)
        # As the spec has rounded them.
        low, high = spec.minimum.astype(np.float64), spec.maximum.astype(np.float64)
        self._centre, self._half_range = (high + low) / 2, (high - low) / 2
        self.spec = spec
        tf.keras.utils.set_random_seed(seed)
        self._generator = np.random.default_rng(seed)
        train_step, environment_step = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
        builder, options = AGENTS[name]
        world = algorithm.World(ts.time_step_spec(OBSERVATION), spec, train_step, environment_step)
        self.built = builder(world, **options)
        self.agent = self.built.agent
        self.agent.initialize()
        self._name = name
        self._train = tf.function(self.agent.train, autograph=False)

    def train(self, num_steps: int, *, eagerly: bool = False) -> None:
        """Takes train steps, each on a new batch of episodes.

        Args:
          num_steps: How many.
          eagerly: Whether without a graph: random numbers then do not depend on how many
            operations there are, and agents for other bounds draw the same ones.
        """
        train = self.agent.train if eagerly else self._train
        for _ in range(num_steps):
            train(self.batch())

    def batch(self) -> Any:
        """Episodes, as the agent's `train` takes them."""
        observation = self._observation()
        info = ()
        if self._name == "bc":
            action = self._in_environment(self.best(observation))
        elif self._name == "cql_sac":
            action = self._in_environment(self._generator.uniform(-1, 1, self._shape))
        else:
            response = self._acting.act(_first(observation))
            action, info = response.action, response.policy_info
        distance = self.normalized(action) - self.best(observation)
        reward = -np.mean(np.square(distance), axis=-1).astype(np.float32)
        rows = trajectory_lib.Trajectory(
            np.full(BATCH, ts.StepType.FIRST, np.int32),
            observation,
            action,
            info,
            np.full(BATCH, ts.StepType.LAST, np.int32),
            reward,
            np.zeros(BATCH, np.float32),
        )
        last = tf.nest.map_structure(np.zeros_like, rows)
        last = last._replace(step_type=rows.next_step_type, observation=observation)
        batch = tf.nest.map_structure(lambda *two: tf.stack(two, axis=1), rows, last)
        is_unroll = self.built.kind == experience.UNROLLS
        return experience.Unroll(batch, ()) if is_unroll else batch

    def best(self, observation: np.ndarray) -> np.ndarray:
        """The best action for observations, in units of half the range, for all elements alike."""
        best = 0.1 + observation @ np.array([0.5, -0.3])
        return np.repeat(best[:, np.newaxis], self._shape[-1], axis=-1)

    def normalized(self, action: np.ndarray) -> np.ndarray:
        """Actions of the environment in units of half their range, by float64."""
        return (np.asarray(action, np.float64) - self._centre) / self._half_range

    def actions(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations, always the same, and what the policy does there."""
        observation = np.random.default_rng(99).uniform(-1, 1, (BATCH, 2)).astype(np.float32)
        return observation, self._rating.act(_first(observation)).action

    def error(self) -> np.ndarray:
        """`[size]`, how far from the best the policy's actions are, in units of half the range.

        For policies that draw their actions the mean of many draws is compared.
        """
        draws = 64 if self._name in ("sac", "cql_sac", "ppo") else 1
        observation = self.actions()[0]
        mean = np.mean([self.normalized(self.actions()[1]) for _ in range(draws)], axis=0)
        return np.mean(np.abs(mean - self.best(observation)), axis=0)

    @functools.cached_property
    def _acting(self) -> graph.GraphInference:
        return graph.GraphInference(self.agent.collect_policy, BATCH)

    @functools.cached_property
    def _rating(self) -> graph.GraphInference:
        return graph.GraphInference(self.agent.policy, BATCH)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (BATCH, *self.spec.shape)

    def _observation(self) -> np.ndarray:
        return self._generator.uniform(-1, 1, (BATCH, 2)).astype(np.float32)

    def _in_environment(self, normalized: np.ndarray) -> np.ndarray:
        action = self._centre + self._half_range * normalized
        return action.astype(self.spec.dtype.as_numpy_dtype)


def _first(observation: np.ndarray) -> ts.TimeStep:
    zeros = np.zeros(BATCH, np.float32)
    return ts.TimeStep(np.zeros(BATCH, np.int32), zeros, zeros + 1, observation)
