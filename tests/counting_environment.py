"""A Gymnasium environment whose observations and rewards say where in which episode they are.

Importing this module registers it as `CountingEnv-v0`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

ENV_ID = "CountingEnv-v0"

_ENDINGS = {
    "terminated": (True, False),
    "truncated": (False, True),
    "both": (True, True),
}


class CountingEnv(gymnasium.Env):
    """Counts steps: observation `[episode_index, step_count]`, reward `step_count` after the step.

    Episode `i` (from 0) lasts `episode_lengths[i % len(episode_lengths)]` steps and ends as
    `endings[i % len(endings)]` says: "terminated", "truncated" or "both". `reset()` goes on to the
    next episode; `reset(seed=...)` starts again at episode 0. Every observation is a fresh array.

    Raises:
      ValueError: On an action outside the action space, or a bad argument.
      RuntimeError: On `step` before the first `reset`, or after an episode ended without `reset`.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(
        self,
        episode_lengths: Sequence[int] = (3,),
        endings: Sequence[str] = ("terminated",),
        action_space: gymnasium.Space | None = None,
        render_mode: str | None = None,
    ):
        if not episode_lengths or any(length < 1 for length in episode_lengths):
            raise ValueError(f"episode_lengths must be positive numbers, not {episode_lengths!r}")
        if not endings or any(ending not in _ENDINGS for ending in endings):
            raise ValueError(f"endings must be among {sorted(_ENDINGS)}, not {endings!r}")
        self._episode_lengths = tuple(episode_lengths)
        self._endings = tuple(endings)
        self.action_space = gymnasium.spaces.Discrete(2) if action_space is None else action_space
        self.observation_space = gymnasium.spaces.Box(0.0, np.inf, shape=(2,), dtype=np.float32)
        self.render_mode = render_mode
        self.actions: list[Any] = []  # Every action received, in order, over all episodes.
        self._episode = -1
        self._step_count = 0
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode = self._episode + 1 if seed is None else 0
        self._step_count = 0
        self._running = True
        return self._observation(), {"episode": self._episode, "step": 0}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._running:
            raise RuntimeError(
                f"step() without reset(): episode {self._episode} is over or never began"
            )
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not in {self.action_space}")
        self.actions.append(action)
        self._step_count += 1
        length = self._episode_lengths[self._episode % len(self._episode_lengths)]
        terminated, truncated = False, False
        if self._step_count == length:
            terminated, truncated = _ENDINGS[self._endings[self._episode % len(self._endings)]]
            self._running = False
        info = {"episode": self._episode, "step": self._step_count}
        return self._observation(), float(self._step_count), terminated, truncated, info

    def render(self) -> np.ndarray | None:
        if self.render_mode != "rgb_array":
            return None
        return np.full((8, 8, 3), self._step_count, dtype=np.uint8)

    def _observation(self) -> np.ndarray:
        return np.array([self._episode, self._step_count], dtype=np.float32)


if ENV_ID not in gymnasium.registry:
    gymnasium.register(id=ENV_ID, entry_point="tests.counting_environment:CountingEnv")
