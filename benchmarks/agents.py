"""What agents cost: agent steps per second of a world with 4 agents x 16 copies and one policy.

Ours: `AgentWorld` over a parallel world of four walkers. Peer: the same walkers as 64 lanes of a
Gymnasium environment with one of them each. Both collect into Reverb, metrics included, with the
same DQN, and both worlds are plain Python, stepped one copy after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

import gymnasium
import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.acting import actor
from actor_learner.agents import algorithm, dqn
from actor_learner.environments import agent_world
from actor_learner.environments import gymnasium as gymnasium_environment
from benchmarks import harness, settings

AGENTS, COPIES = 4, 16
_EPISODE = 200


class Walker:
    """A point that is pushed to one of two sides, and pulled back to the middle."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, random: np.random.Generator) -> np.ndarray:
        self._state = random.uniform(-0.05, 0.05, 4)
        self._steps = 0
        return self._state.astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        x, speed, y, drift = self._state.tolist()
        speed += 0.02 * ((10.0 if action else -10.0) - x)
        drift += 0.02 * (x - y)
        self._state = np.array([x + 0.02 * speed, speed, y + 0.02 * drift, drift])
        self._steps += 1
        return self._state.astype(np.float32), 1.0, self._steps >= _EPISODE


class WalkerEnv(gymnasium.Env):
    """One walker."""

    observation_space, action_space = Walker.observation_space, Walker.action_space

    def __init__(self) -> None:
        self._walker = Walker()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._walker.reset(self.np_random), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, over = self._walker.step(action)
        return observation, reward, False, over, {}


class WalkerWorld:
    """Several walkers at once."""

    metadata = {"name": "walkers"}

    def __init__(self) -> None:
        self.possible_agents = [f"walker_{number}" for number in range(AGENTS)]
        self.agents: list[str] = []
        self._walkers = {agent: Walker() for agent in self.possible_agents}
        self._random = np.random.default_rng()

    def observation_space(self, agent: str) -> gymnasium.Space:
        return Walker.observation_space

    def action_space(self, agent: str) -> gymnasium.Space:
        return Walker.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        observations = {a: w.reset(self._random) for a, w in self._walkers.items()}
        return observations, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, ...]:
        observations, rewards, truncations = {}, {}, {}
        for agent, action in actions.items():
            met = self._walkers[agent].step(action)
            observations[agent], rewards[agent], truncations[agent] = met
        self.agents = [agent for agent in self.agents if not truncations[agent]]
        ends = dict.fromkeys(actions, False)
        return observations, rewards, ends, truncations, {agent: {} for agent in actions}

    def close(self) -> None:
        pass


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    world = agent_world.AgentWorld(WalkerWorld, COPIES, seed=0)
    single = gymnasium_environment.GymnasiumEnvironment(
        WalkerEnv, AGENTS * COPIES, vectorization="sync", seed=0
    )
    measured = {}
    with settings.closing(world, single), contextlib.ExitStack() as closing:
        for name, env in (("ours", world), ("peer", single)):
            measured[name] = _rate(env, config, closing)
        results = harness.alternate(measured, config.repetitions)
    yield harness.row(
        "agents",
        f"{AGENTS} agents x {COPIES} copies, DQN 64x64",
        results,
        note=f"peer: {AGENTS * COPIES} lanes of one agent each, ours",
    )


def _rate(
    env: Any, config: settings.Settings, closing: contextlib.ExitStack
) -> Callable[[], float]:
    train_step = tf.Variable(0, dtype=tf.int64)
    agent = dqn.dqn(
        algorithm.World(
            tensor_spec.from_spec(env.time_step_spec()),
            tensor_spec.from_spec(env.action_spec()),
            train_step,
            tf.Variable(0, dtype=tf.int64),
        ),
        fc_layer_params=(64, 64),
    ).agent
    stream = settings.LaneStream(agent.collect_data_spec, AGENTS * COPIES)
    closing.callback(stream.close)
    steps_per_run = 32 * AGENTS * COPIES
    acting = actor.Actor(
        env,
        agent.collect_policy,
        train_step,
        steps_per_run=steps_per_run,
        observers=[stream.observer],
        metrics=actor.collect_metrics(10),
    )

    def run() -> int:
        acting.run()
        return steps_per_run

    return harness.rate(run, config.seconds)
