"""An environment suite of one's own: a function that makes TF-Agents `PyEnvironment`s.

`python train.py --gin_file=examples/own_environment.gin`. For Gymnasium environments nothing is to
be written: bind `GymnasiumEnvironment.env_id`.
"""

import gin
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts


class Corridor(py_environment.PyEnvironment):
    """Go right: reward 1 at the end of `length` cells, time out after four times as many steps."""

    def __init__(self, length, seed):
        super().__init__()
        self._length = length
        self._generator = np.random.default_rng(seed)
        self._position = self._steps = 0

    def observation_spec(self):
        return array_spec.BoundedArraySpec([self._length], np.float32, 0.0, 1.0, "cell")

    def action_spec(self):
        return array_spec.BoundedArraySpec([], np.int64, 0, 1, "right")

    def _reset(self):
        self._position, self._steps = int(self._generator.integers(self._length // 2)), 0
        return ts.restart(self._observation())

    def _step(self, action):
        if self._current_time_step.is_last():
            return self.reset()
        self._position = max(0, self._position + (1 if action == 1 else -1))
        self._steps += 1
        if self._position >= self._length - 1:
            return ts.termination(self._observation(), reward=np.float32(1.0))
        if self._steps >= 4 * self._length:  # No end of the world: values go on behind it.
            return ts.truncation(self._observation(), reward=np.float32(0.0))
        return ts.transition(self._observation(), reward=np.float32(0.0))

    def _observation(self):
        cells = np.zeros([self._length], np.float32)
        cells[min(self._position, self._length - 1)] = 1.0
        return cells


@gin.configurable
def corridor(length=8, seed=0):
    """Makes one; called for training and again for each kind of evaluation, with other seeds."""
    return Corridor(length, seed)
