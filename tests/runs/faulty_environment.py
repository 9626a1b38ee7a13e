"""An environment that gives rewards or observations which are not finite, when it is told to."""

from __future__ import annotations

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.support import configurable

LENGTH = 5


@configurable.register
class FaultyEnvironment(py_environment.PyEnvironment):
    """Episodes of five steps, of one lane; each step is rewarded by 1.

    Args:
      seed: Of no effect.
      num_envs: Must be 1.
      fault: What one number of step `at` is instead, such as 3e38, 'nan' or 'inf', which no gin
        file can say otherwise; None for no fault.
      field: Where: 'reward' or 'observation'.
      at: Counted over all episodes, from 1.
      lasting: Whether all later steps have it, too.
      continuous: Whether actions are vectors in [-1, 1] rather than one of two numbers.
      check_finite: False lets it pass to the learner; None has whoever collects refuse it.
    """

    def __init__(
        self,
        seed: int = 0,
        num_envs: int = 1,
        fault: float | str | None = None,
        field: str = "reward",
        at: int = 98,
        lasting: bool = False,
        continuous: bool = False,
        check_finite: bool | None = False,
    ) -> None:
        super().__init__()
        assert num_envs == 1
        assert field in ("reward", "observation")
        self.check_finite = check_finite
        self._fault = None if fault is None else np.float64(fault).astype(np.float32)
        self._field, self._at, self._lasting = field, at, lasting
        self._continuous = continuous
        self._steps = self._step_of_episode = 0

    def observation_spec(self):
        return array_spec.BoundedArraySpec([2], np.float32, 0.0, 1.0)

    def action_spec(self):
        if self._continuous:
            return array_spec.BoundedArraySpec([2], np.float32, -1.0, 1.0)
        return array_spec.BoundedArraySpec([], np.int64, 0, 1)

    def _reset(self):
        self._step_of_episode = 0
        return ts.restart(np.array([0.0, 1.0], np.float32))

    def _step(self, action):
        if self._current_time_step.is_last():
            return self._reset()
        self._steps += 1
        self._step_of_episode += 1
        observation = np.array([self._step_of_episode / LENGTH, 1.0], np.float32)
        reward = np.asarray(1.0, np.float32)
        is_faulty = self._steps >= self._at if self._lasting else self._steps == self._at
        if self._fault is not None and is_faulty:
            (reward if self._field == "reward" else observation[:1])[...] = self._fault
        ended = self._step_of_episode == LENGTH
        # Not by TF-Agents' functions, which refuse NaN.
        return ts.TimeStep(
            np.asarray(ts.StepType.LAST if ended else ts.StepType.MID, np.int32),
            reward,
            np.asarray(0.0 if ended else 1.0, np.float32),
            observation,
        )
