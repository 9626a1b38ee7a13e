"""Further wrappers of Atari games under TF-Agents' names: frame stack, FIRE, time limit."""

from __future__ import annotations

import collections
from typing import Any

import gymnasium
import numpy as np
from tf_agents.environments import py_environment, wrappers
from tf_agents.trajectories import time_step as ts

from actor_learner.support import configurable

_NOOP, _FIRE = 0, 1


@configurable.register
class FrameStack4(gymnasium.Wrapper):
    """Shows the last four frames `[height, width, 1]` as one, the latest last.

    An episode begins with four times its first frame.
    """

    STACK_SIZE = 4

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._frames: collections.deque = collections.deque(maxlen=self.STACK_SIZE)
        self.observation_space = gymnasium.spaces.Box(
            low=0, high=255, shape=(*env.observation_space.shape[:2], 4), dtype=np.uint8
        )

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        frame, info = self.env.reset(**kwargs)
        self._frames.extend([frame] * self.STACK_SIZE)
        return np.concatenate(self._frames, axis=2), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        frame, *rest = self.env.step(action)
        self._frames.append(frame)
        return (np.concatenate(self._frames, axis=2), *rest)


@configurable.register
class FireOnReset(gymnasium.Wrapper):
    """Begins each episode with FIRE and one more action, for games that wait for it."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        meanings = self.unwrapped.get_action_meanings()
        if len(meanings) >= 3 and meanings[_FIRE] == "FIRE":
            self.env.step(_FIRE)
            observation, _, _, _, info = self.env.step(_FIRE + 1)
        return observation, info


class AtariTimeLimit(wrappers.PyEnvironmentBaseWrapper):
    """Ends a game after a number of steps, and begins another one only when it is over.

    After a lost life that terminated (`AtariPreprocessing.terminal_on_life_loss`) the same game
    goes on: the step after LAST does nothing in it (NOOP) and is the FIRST of the next episode.
    TF-Agents' wrapper gives a MID there, so that episodes have no beginning.

    Args:
      env: A PyEnvironment that does not reset on its own.
      duration: Steps of a game; at the limit it is truncated: LAST, with its discount kept.
    """

    def __init__(self, env: py_environment.PyEnvironment, duration: int) -> None:
        super().__init__(env)
        self._duration = duration
        self._num_steps = 0
        self._episode_ended = False

    @property
    def game_over(self) -> bool:
        """Whether the next step begins another game."""
        if self._num_steps >= self._duration:
            return True
        # Without AtariPreprocessing nobody knows of lives: an episode is a game.
        return getattr(self._env, "game_over", self._episode_ended)

    def _reset(self) -> ts.TimeStep:
        self._num_steps = 0
        self._episode_ended = False
        return self._env.reset()

    def _step(self, action: Any) -> ts.TimeStep:
        if self.game_over:
            return self.reset()
        if self._episode_ended:
            return self._go_on()
        time_step = self._env.step(action)
        self._num_steps += 1
        if self._num_steps >= self._duration:
            time_step = time_step._replace(step_type=np.asarray(ts.StepType.LAST))
        self._episode_ended = bool(time_step.is_last())
        return time_step

    def _go_on(self) -> ts.TimeStep:
        """Begins an episode in the middle of a game."""
        time_step = self._env.step(np.full((), _NOOP, self.action_spec().dtype))
        self._num_steps += 1
        if self.game_over:
            return self.reset()
        self._episode_ended = False
        return time_step._replace(
            step_type=np.asarray(ts.StepType.FIRST),
            reward=np.zeros_like(time_step.reward),
            discount=np.ones_like(time_step.discount),
        )
