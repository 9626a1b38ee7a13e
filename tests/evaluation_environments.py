"""Environments for tests of evaluation: one that notes its seeds, one whose rewards are NaN."""

from __future__ import annotations

from typing import Any

import gin
import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import gymnasium as gymnasium_environment

NOTED: list[tuple[str, int]] = []
"""Who was seeded with what, in order, in this process."""

LENGTH = 4


class SeedNoting(gymnasium.Env):
    """Episodes of four steps, each with a random reward; `scale` times as much."""

    def __init__(self, who: str, scale: float = 1.0, size: int = 2) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._who = who
        self._scale = scale
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            NOTED.append((self._who, seed))
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        reward = self._scale * self.np_random.uniform()
        return self._observation(), reward, self._steps == LENGTH, False, {}

    def _observation(self) -> np.ndarray:
        shape = self.observation_space.shape
        return self.np_random.uniform(size=shape).astype(np.float32)


@gin.configurable(module="tests")
def noting(
    seed: int, num_envs: int = 2, who: str = "training", scale: float = 1.0, size: int = 2
) -> py_environment.PyEnvironment:
    """Lanes that note their seeds."""
    return gymnasium_environment.GymnasiumEnvironment(
        lambda: SeedNoting(who, scale, size), num_envs, vectorization="sync", seed=seed
    )


class NotFinite(py_environment.PyEnvironment):
    """Another environment, whose rewards are NaN from the `first`-th reset on.

    As with the check where such rewards enter turned off: they reach the evaluation.
    """

    check_finite = False

    def __init__(self, inner: py_environment.PyEnvironment, first: int = 1) -> None:
        super().__init__()
        self._inner = inner
        self._first = first
        self._resets = 0

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._inner.batch_size

    def observation_spec(self) -> Any:
        return self._inner.observation_spec()

    def action_spec(self) -> Any:
        return self._inner.action_spec()

    def seed(self, seed: int) -> int:
        return self._inner.seed(seed)

    def _reset(self) -> ts.TimeStep:
        self._resets += 1
        return self._inner.reset()

    def _step(self, action: Any) -> ts.TimeStep:
        step = self._inner.step(action)
        wrong = self._resets >= self._first
        return step._replace(reward=np.full_like(step.reward, np.nan)) if wrong else step


@gin.configurable(module="tests")
def not_finite(seed: int, num_envs: int = 2, first: int = 1) -> py_environment.PyEnvironment:
    """Lanes of `noting`, with rewards that are NaN."""
    return NotFinite(noting(seed, num_envs, who="evaluation"), first)
