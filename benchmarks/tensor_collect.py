"""Collects unrolls into a Reverb queue, from tensor environments and from Gymnasium's."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.acting import actor, graph_unroll
from actor_learner.agents import algorithm, ppo
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments.tensor import bricks, cartpole, environment, pendulum
from actor_learner.replay.streams import unroll_queue
from benchmarks import streams

LENGTH = 32
_QUEUED = 64

WORLDS = {
    "CartPole": (cartpole.CartPoleDynamics, "CartPole-v1"),
    "Pendulum": (pendulum.PendulumDynamics, "Pendulum-v1"),
    "pixels": (bricks.BricksDynamics, None),
}
"""The dynamics of each, and Gymnasium's name of the same environment; None if it has none."""


def tensor_env(world: str, lanes: int) -> Any:
    return environment.TensorEnvironment(WORLDS[world][0](), lanes, seed=0)


def gymnasium_env(world: str, lanes: int) -> Any:
    return gymnasium_environment.GymnasiumEnvironment(WORLDS[world][1], lanes, seed=0)


class Collector:
    """An actor with PPO's collect policy (64x64) that fills an `UnrollQueue`.

    Args:
      env: Where it acts; closed with it.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._steps = LENGTH * env.batch_size
        counter = tf.Variable(0, dtype=tf.int64)
        world = algorithm.World(
            tensor_spec.from_spec(env.time_step_spec()),
            tensor_spec.from_spec(env.action_spec()),
            counter,
            tf.Variable(0, dtype=tf.int64),
        )
        policy = ppo.ppo(world, fc_layer_params=(64, 64)).agent.collect_policy
        queue = unroll_queue.UnrollQueue(LENGTH, max_queued_batches=_QUEUED)
        self._stream = streams.Stream(queue, policy.trajectory_spec, env.batch_size)
        self._written = 0
        self._bare: Callable[[], None] | None = None
        self._actor = actor.Actor(
            env,
            policy,
            counter,
            group_steps_per_run=LENGTH,
            transition_observers=[self._stream.observer],
            metrics=actor.collect_metrics(20),
        )

    def collect(self) -> int:
        """One unroll, written and confirmed; returns its environment steps."""
        if self._written == _QUEUED:
            self._stream.empty()
            self._written = 0
        self._actor.run()
        self._stream.observer.flush()
        self._written += 1
        return self._steps

    def bare(self) -> int:
        """One unroll by the graph alone, which nobody looks at."""
        if self._bare is None:
            self._bare = _bare_loop(self._actor.graph_unroll)
        self._bare()
        return self._steps

    def close(self) -> None:
        self._stream.close()
        self._env.close()


def _bare_loop(unroll: graph_unroll.GraphUnroll) -> Callable[[], None]:
    """Calls the unroll's graph again and again, with the tensors that it gave last."""
    time_step = tf.nest.map_structure(tf.constant, unroll.reset())
    carry = unroll.env.carry

    def call() -> None:
        nonlocal time_step, carry
        inputs = tf.nest.flatten((time_step, carry)) + list(unroll._state)
        (carry, time_step, unroll._state), _ = unroll._unroll(*inputs)

    return call
