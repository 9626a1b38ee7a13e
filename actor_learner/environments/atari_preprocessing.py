"""`AtariPreprocessing`: the usual frames of an Atari game, as TF-Agents' wrapper makes them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from actor_learner.support import configurable, errors, extras


@configurable.register
class AtariPreprocessing(gymnasium.Wrapper):
    """Repeats actions, and shrinks the brighter pixels of the last two frames to a grey square.

    Observations are uint8 `[screen_size, screen_size, 1]`. The counterpart of TF-Agents' wrapper:
    unlike Gymnasium's of the same name it takes no random no-ops at the start, accepts games that
    skip frames themselves, and can tell the end of a life from that of a game.

    Args:
      env: An environment of `ale_py`, of whose frames this makes its own.
      frame_skip: Frames per action.
      terminal_on_life_loss: Whether a lost life terminates; the game is not over then.
      screen_size: Pixels per side.

    Attributes:
      game_over: Whether the game has ended, rather than a life only.
      lives: How many are left.

    Raises:
      errors.ConfigError: If a number is not positive, or `env` is not a game of `ale_py`.
      errors.MissingExtraError: If OpenCV is not installed.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        frame_skip: int = 4,
        terminal_on_life_loss: bool = False,
        screen_size: int = 84,
    ) -> None:
        super().__init__(env)
        for name, value in (("frame_skip", frame_skip), ("screen_size", screen_size)):
            if value <= 0:
                raise errors.ConfigError(
                    f"AtariPreprocessing.{name} is {value}; it must be 1 or more"
                )
        if not hasattr(env.unwrapped, "ale"):
            raise errors.ConfigError(
                f"AtariPreprocessing wraps games of ale_py, not {env.unwrapped}: load such a game, "
                "or give suite_atari.load other gym_env_wrappers"
            )
        self._cv2 = extras.require("cv2", "atari")
        self._frame_skip = frame_skip
        self._terminal_on_life_loss = terminal_on_life_loss
        self._screen_size = screen_size
        self.observation_space = gymnasium.spaces.Box(
            low=0, high=255, shape=(screen_size, screen_size, 1), dtype=np.uint8
        )
        height, width = env.unwrapped.ale.getScreenDims()
        self._frames = np.zeros((2, height, width), np.uint8)  # The last two of an action.
        self.game_over = False
        self.lives = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts a new game."""
        _, info = self.env.reset(seed=seed, options=options)
        self.lives = self.unwrapped.ale.lives()
        self.game_over = False
        self.unwrapped.ale.getScreenGrayscale(self._frames[0])
        self._frames[1].fill(0)
        return self._observation(), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Repeats `action`; the end of a game or life ends the repetition early."""
        total_reward = 0.0
        for frame in range(self._frame_skip):
            _, reward, terminated, truncated, info = self.env.step(action)
            total_reward += float(reward)
            self.game_over = terminated or truncated
            lives, self.lives = self.lives, self.unwrapped.ale.lives()
            if self._terminal_on_life_loss and self.lives < lives:
                terminated = True
            if terminated or truncated:
                break
            if frame >= self._frame_skip - 2:
                index = frame - max(self._frame_skip - 2, 0)
                self.unwrapped.ale.getScreenGrayscale(self._frames[index])
        return self._observation(), total_reward, terminated, truncated, info

    def _observation(self) -> np.ndarray:
        frame = self._frames[0]
        if self._frame_skip > 1:
            # In place: an action that ends early shows what was pooled before, as in TF-Agents.
            np.maximum(frame, self._frames[1], out=frame)
        size = (self._screen_size, self._screen_size)
        resized = self._cv2.resize(frame, size, interpolation=self._cv2.INTER_AREA)
        return np.asarray(resized, np.uint8)[:, :, np.newaxis]
