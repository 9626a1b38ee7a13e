"""Pictures of dynamics: by the Gymnasium environment of the same rules, or of a grid of cells."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np

_CELL = 32  # Pixels.
_COLOURS = (
    (240, 240, 240),
    (230, 80, 60),
    (70, 130, 230),
    (90, 190, 90),
    (240, 190, 60),
    (160, 100, 200),
)


def of_gymnasium(env_id: str, state: Any) -> np.ndarray:
    """Draws `state` as the environment of this id would, uint8 `[height, width, 3]`."""
    env = _drawing(env_id)
    env.state = np.asarray(state, np.float64)
    return np.asarray(env.render())


def of_grid(grid: np.ndarray) -> np.ndarray:
    """Draws bool `[rows, columns, channels]`, a colour per channel, later ones on top."""
    picture = np.zeros((*grid.shape[:2], 3), np.uint8)
    for channel in range(grid.shape[2]):
        picture[grid[:, :, channel]] = _COLOURS[channel % len(_COLOURS)]
    return picture.repeat(_CELL, axis=0).repeat(_CELL, axis=1)


@functools.cache
def _drawing(env_id: str) -> Any:
    env = gymnasium.make(env_id, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    return env
