"""A Gymnasium wrapper that gives a continuous action other bounds and another dtype.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class RescaledAction(gymnasium.ActionWrapper):
    """Takes actions within [low, high] for those of the environment, and refuses any other.

    Unlike Gymnasium's `RescaleAction` it may change the dtype too, and it checks what it is given.

    Args:
      env: Its action is a Box with bounds.
      low: The new lower bound, of all elements or of each.
      high: The new upper bound.
      dtype: The new dtype.
    """

    def __init__(self, env: gymnasium.Env, low: Any, high: Any, dtype: str = "float32") -> None:
        super().__init__(env)
        inside = env.action_space
        if not isinstance(inside, spaces.Box) or not inside.is_bounded():
            raise ValueError(f"only a Box with bounds can be rescaled, got {inside}")
        low, high = (np.broadcast_to(bound, inside.shape).astype(dtype) for bound in (low, high))
        self.action_space = spaces.Box(low, high, dtype=np.dtype(dtype).type)
        self._inside = inside

    def action(self, action: np.ndarray) -> np.ndarray:
        outside = self.action_space
        if not outside.contains(action):
            raise ValueError(f"{action!r} ({action.dtype}) is not an action of {outside}")
        share = (action.astype(np.float64) - outside.low) / (outside.high - outside.low)
        inside = self._inside.low + share * (self._inside.high - self._inside.low)
        return np.clip(inside, self._inside.low, self._inside.high).astype(self._inside.dtype)
