"""An environment that gives one reward which is not a finite number, when it is told to."""

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
      fault: The reward of step `at`; None for 1 as of all others.
      at: Counted over all episodes, from 1.
      check_finite: False lets it pass to the learner; None has whoever collects refuse it.
    """

    def __init__(
        self,
        seed: int = 0,
        num_envs: int = 1,
        fault: float | None = None,
        at: int = 100,
        check_finite: bool | None = False,
    ) -> None:
        super().__init__()
        assert num_envs == 1
        self.check_finite = check_finite
        self._fault, self._at = fault, at
        self._steps = self._step_of_episode = 0

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
        self._steps += 1
        self._step_of_episode += 1
        faulty = self._fault is not None and self._steps == self._at
        reward = np.float32(self._fault if faulty else 1.0)
        ended = self._step_of_episode == LENGTH
        # Not by TF-Agents' functions, which refuse NaN.
        return ts.TimeStep(
            np.asarray(ts.StepType.LAST if ended else ts.StepType.MID, np.int32),
            np.asarray(reward, np.float32),
            np.asarray(0.0 if ended else 1.0, np.float32),
            self._observation(),
        )

    def _observation(self):
        return np.array([self._step_of_episode / LENGTH, 1.0], np.float32)
