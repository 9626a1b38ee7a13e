"""A trigger of one's own; `python train.py --gin_file=examples/custom_trigger.gin` uses it."""

import gin
import numpy as np


@gin.configurable
class WeightNormTrigger:
    """Appends the norm of the policy's weights to a file every `interval` train steps."""

    def __init__(self, agent, run_dir, interval=500):
        self._variables = agent.policy.variables()
        self._path = f"{run_dir}/weight_norm.txt"
        self._interval = interval
        self._next = 0

    def __call__(self, train_step):
        if train_step >= self._next:
            norm = np.sqrt(sum(np.sum(np.square(v.numpy())) for v in self._variables))
            with open(self._path, "a") as file:
                file.write(f"{train_step} {norm:.4f}\n")
            self._next = train_step + self._interval
