"""An environment that writes down each step it takes, so that steps can be counted from outside."""

from __future__ import annotations

import os

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.learning import triggers
from actor_learner.support import configurable

LENGTH = 7


@configurable.register
class LoggedEnvironment(py_environment.PyEnvironment):
    """Episodes of seven steps, of one lane; each step is rewarded by 1.

    Args:
      seed: Of no effect.
      num_envs: Must be 1.
      path: Gets one byte per step, of all processes; None writes nothing.
    """

    def __init__(self, seed: int = 0, num_envs: int = 1, path: str | None = None) -> None:
        super().__init__()
        assert num_envs == 1
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = None if path is None else os.open(path, flags, 0o600)
        self._step_of_episode = 0

    def observation_spec(self):
        return array_spec.BoundedArraySpec([2], np.float32, 0.0, 1.0)

    def action_spec(self):
        return array_spec.BoundedArraySpec([], np.int64, 0, 1)

    def _reset(self):
        self._step_of_episode = 0
        return ts.restart(self._observation())

    def _step(self, action):
        if self._current_time_step.is_last():
            return self._reset()
        if self._file is not None:
            os.write(self._file, b".")
        self._step_of_episode += 1
        if self._step_of_episode == LENGTH:
            return ts.termination(self._observation(), np.float32(1.0))
        return ts.transition(self._observation(), np.float32(1.0))

    def _observation(self):
        return np.array([self._step_of_episode / LENGTH, 1.0], np.float32)


@configurable.register
class StopWhenFileExists:
    """A trigger that ends training when the test says so: however fast it is, faults come before.

    Args:
      path: Of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, train_step) -> None:
        if os.path.exists(self._path):
            raise triggers.StopTraining("the test has seen enough")
