"""Checks of actions that cost a vector environment less."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

_MultiDiscrete = gymnasium.spaces.MultiDiscrete


class _EqualChoices(_MultiDiscrete):
    """A `MultiDiscrete` of the same choices `0 … n - 1` in every lane."""

    def __init__(self, space: _MultiDiscrete) -> None:
        super().__init__(space.nvec, dtype=space.dtype)
        self._num_choices = np.uint64(space.nvec[0])

    def contains(self, x: Any) -> bool:
        if type(x) is np.ndarray and x.dtype == np.int64 and x.shape == self._shape:
            # As unsigned numbers, negative ones are larger than all choices.
            return not np.count_nonzero(x.view(np.uint64) >= self._num_choices)
        return super().contains(x)


def quicken(env: gymnasium.vector.VectorEnv) -> None:
    """Gives a vector environment an equal action space whose `contains` takes a quarter as long.

    Environments ask it in every step, at an eighth of the cost of a step of CartPole's.
    """
    space = env.unwrapped.action_space
    if (
        type(space) is _MultiDiscrete
        and space.nvec.ndim == 1
        and (space.nvec == space.nvec[0]).all()
        and not space.start.any()
    ):
        env.unwrapped.action_space = _EqualChoices(space)
