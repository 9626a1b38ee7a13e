"""Environments in which illegal actions raise."""

import gymnasium
import numpy as np

ACTIONS = 5
EPISODE = 12


class Forbidding(gymnasium.Env):
    """The reward is 1 for the highest legal action; an illegal one raises.

    The observation shows a number that says nothing about what is legal: only the mask does.

    Args:
      in_info: Say what is legal in the info, instead of in the observation.
    """

    def __init__(self, in_info=False):
        self._in_info = in_info
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)
        inner = gymnasium.spaces.Box(-1.0, 1.0, (3,))
        self.observation_space = (
            inner
            if in_info
            else gymnasium.spaces.Dict(
                {"observation": inner, "action_mask": gymnasium.spaces.MultiBinary(ACTIONS)}
            )
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._show()

    def step(self, action):
        if not self._legal[action]:
            raise AssertionError(f"{action} is not legal, {self._legal} are")
        reward = float(action == np.flatnonzero(self._legal)[-1])
        self._steps += 1
        observation, info = self._show()
        return observation, reward, self._steps == EPISODE, False, info

    def _show(self):
        self._legal = self.np_random.uniform(size=ACTIONS) < 0.4
        self._legal[self.np_random.integers(ACTIONS)] = True
        shown = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        mask = self._legal.astype(np.int8)
        if self._in_info:
            return shown, {"action_mask": mask}
        if self._steps == EPISODE:
            mask = np.zeros_like(mask)  # As in the last observation of a game.
        return {"observation": shown, "action_mask": mask}, {}


class ForbiddingParts(gymnasium.Env):
    """Two choices with masks of their own, of 2 and 4 values; illegal ones raise."""

    COUNTS = (2, 4)

    def __init__(self, joined=True):
        self._joined = joined
        self.action_space = gymnasium.spaces.MultiDiscrete(self.COUNTS)
        parts = [gymnasium.spaces.MultiBinary(count) for count in self.COUNTS]
        mask = (
            gymnasium.spaces.MultiBinary(sum(self.COUNTS))
            if joined
            else (gymnasium.spaces.Tuple(parts))
        )
        self.observation_space = gymnasium.spaces.Dict(
            {
                "place": gymnasium.spaces.Box(-1.0, 1.0, (2,)),
                "colour": gymnasium.spaces.Discrete(3),
                "action_mask": mask,
            }
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._show(), {}

    def step(self, action):
        for chosen, legal in zip(action, self._legal):
            if not legal[chosen]:
                raise AssertionError(f"{action} is not legal, {self._legal} are")
        self._steps += 1
        return self._show(), float(action[1]), self._steps == EPISODE, False, {}

    def _show(self):
        self._legal = []
        for count in self.COUNTS:
            legal = self.np_random.uniform(size=count) < 0.4
            legal[self.np_random.integers(count)] = True
            self._legal.append(legal.astype(np.int8))
        return {
            "place": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "colour": self.np_random.integers(3),
            "action_mask": np.concatenate(self._legal) if self._joined else tuple(self._legal),
        }
