"""Small Gymnasium environments for the tests of this folder.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests import counting_environment


class SeededLengthEnv(counting_environment.CountingEnv):
    """Counts; episodes last `1 + seed % 4` steps, so lanes with other seeds are out of step."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        if seed is not None:
            self._episode_lengths = (1 + seed % 4,)
        return super().reset(seed=seed, options=options)


class HangingEnv(counting_environment.CountingEnv):
    """Never returns from a step with action 1."""

    def step(self, action: Any):
        if action == 1:
            threading.Event().wait()
        return super().step(action)


class RaisingEnv(counting_environment.CountingEnv):
    """Raises on action 1."""

    def step(self, action: Any):
        if action == 1:
            raise ZeroDivisionError("the planted mistake")
        return super().step(action)


class ModulesEnv(counting_environment.CountingEnv):
    """Says in its info whether its process has imported TensorFlow."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "tensorflow": "tensorflow" in sys.modules}


class UnconstructibleEnv(gymnasium.Env):
    """Cannot be made outside the process that imported this module first."""

    def __init__(self, main_process: int):
        import os

        if os.getpid() != main_process:
            raise FileNotFoundError("no such level file")
        self.observation_space = spaces.Box(0.0, 1.0, (1,))
        self.action_space = spaces.Discrete(2)


ALL_SPACES = spaces.Dict(
    {
        "box": spaces.Box(-1.0, 1.0, (2, 3), dtype=np.float64),
        "image": spaces.Box(0, 255, (4, 4, 1), dtype=np.uint8),
        "discrete": spaces.Discrete(3, start=5),
        "multi_discrete": spaces.MultiDiscrete([2, 4]),
        "multi_binary": spaces.MultiBinary(3),
        "tuple": spaces.Tuple(
            (spaces.Box(0.0, 2.0, (), dtype=np.float32), spaces.Dict({"x": spaces.Discrete(2)}))
        ),
    }
)
ALL_ACTIONS = spaces.Dict(
    {
        "box": spaces.Box(-1.0, 1.0, (2,), dtype=np.float32),
        "discrete": spaces.Discrete(3, start=5),
        "multi_discrete": spaces.MultiDiscrete([2, 4], start=[-1, 10]),
        "multi_binary": spaces.MultiBinary(3),
        "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0.0, 1.0, ()))),
    }
)


class AllSpacesEnv(gymnasium.Env):
    """Observations and actions of all six kinds of space; samples are drawn from `np_random`.

    It refuses actions outside its space and keeps those it got in `actions`.
    """

    def __init__(self, length: int = 4):
        self.observation_space = ALL_SPACES
        self.action_space = ALL_ACTIONS
        self.actions: list[Any] = []
        self._length = length
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any):
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.actions.append(action)
        self._steps += 1
        return self._observation(), 1.0, False, self._steps == self._length, {}

    def _observation(self) -> dict[str, Any]:
        rng = self.np_random
        return {
            "box": rng.uniform(-1.0, 1.0, (2, 3)),
            "image": rng.integers(0, 256, (4, 4, 1), dtype=np.uint8),
            "discrete": np.int64(rng.integers(5, 8)),
            "multi_discrete": rng.integers(0, [2, 4]),
            "multi_binary": rng.integers(0, 2, 3).astype(np.int8),
            "tuple": (
                np.asarray(rng.uniform(0.0, 2.0), dtype=np.float32),
                {"x": np.int64(rng.integers(2))},
            ),
        }


class SlowUntil(gymnasium.Wrapper):
    """Takes `seconds` for each step until the file `path` exists.

    A test that does something to a run in progress makes the file when it is done with it: the run
    cannot be over before, however late the test gets to it.
    """

    def __init__(self, env: gymnasium.Env, path: str, seconds: float):
        super().__init__(env)
        self._path, self._seconds = path, seconds

    def step(self, action):
        if not os.path.exists(self._path):
            time.sleep(self._seconds)
        return super().step(action)


class Poison(gymnasium.Wrapper):
    """Gives `value` as the reward, or as an observation's last element, of its step number `at`.

    Steps are counted from 1 through all episodes; 0 is the first reset.
    """

    def __init__(self, env: gymnasium.Env, at: int, value: float = float("nan"), field="reward"):
        super().__init__(env)
        self._at, self._value, self._field = at, value, field
        self._steps = 0

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        return self._observation(observation, self._steps == 0 == self._at), info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self._steps += 1
        now = self._steps == self._at
        if now and self._field == "reward":
            reward = self._value
        return self._observation(observation, now), reward, *rest

    def _observation(self, observation, now):
        if now and self._field == "observation":
            observation = observation.copy()
            observation.flat[-1] = self._value
        return observation


class ScaleObservation(gymnasium.ObservationWrapper):
    """Multiplies observations by `factor`, as if they came in other units."""

    def __init__(self, env: gymnasium.Env, factor: float):
        super().__init__(env)
        self._factor = factor
        self.observation_space = spaces.Box(-np.inf, np.inf, env.observation_space.shape)

    def observation(self, observation):
        return (self._factor * observation).astype(np.float32)
