"""A trigger that makes an agent's weights NaN or infinite, as nothing in the product should."""

from __future__ import annotations

from typing import Any

import numpy as np

from actor_learner.support import configurable

CHECKPOINT_INTERVAL = 2
"""Train steps between checkpoints that it counts on."""


@configurable.register
class PoisonWeights:
    """Poisons the policy that acts, once a checkpoint of this process was saved.

    Args:
      agent: Its policy.
      value: What weights are made: 'nan' or 'inf', which no gin file can say otherwise.
    """

    def __init__(self, agent: Any, value: str) -> None:
        self._agent, self._value = agent, np.float32(value)
        self._start = 0
        self._is_due = False

    def set_start(self, train_step: Any) -> None:
        self._start = int(train_step)

    def __call__(self, train_step: Any) -> None:
        if self._is_due:
            weights = self._agent.collect_policy.trainable_variables[-1]
            weights.assign(np.full(weights.shape, self._value))
        self._is_due = train_step >= self._start + CHECKPOINT_INTERVAL
