"""An environment that waits rather than computes, as simulators on other machines do.

`benchmarks.sleeping_environment:Sleeping-v0`
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

ENV_ID = "Sleeping-v0"
STEP_SECONDS = 0.02
EPISODE_STEPS = 200


class SleepingEnvironment(gymnasium.Env):
    """Every step takes `step_seconds`, of which the processor sees next to nothing."""

    def __init__(self, step_seconds: float = STEP_SECONDS) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._step_seconds = step_seconds
        self._observation = np.zeros(4, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        time.sleep(self._step_seconds)
        self._steps += 1
        return self._observation, 1.0, False, self._steps >= EPISODE_STEPS, {}


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, SleepingEnvironment)
