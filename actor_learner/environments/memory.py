"""A task that only an agent with memory can solve. Importing this module registers it.

The id is `actor_learner.environments.memory:MemoryCorridor-v0`, which imports the module as well.
Worker processes import it, so it must not import TensorFlow.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, utils

from actor_learner.support import errors

ENV_ID = "MemoryCorridor-v0"

_CUE, _CORRIDOR, _ANSWER = range(3)  # Parts of an episode, each with a flag in the observation.
_NUM_PARTS = 3
_SQUARE = 32  # Pixels of a symbol in a picture.
_BACKGROUNDS = ((0, 110, 0), (90, 90, 90), (130, 0, 0))


class _Corridors:
    """The state of many episodes, all in arrays `[lanes]`; see `MemoryCorridor` for the task."""

    def __init__(
        self, num_lanes: int, num_cues: int, shortest_delay: int, longest_delay: int
    ) -> None:
        if num_cues < 2:
            raise errors.ConfigError(f"num_cues must be at least 2, got {num_cues}")
        if not 0 <= shortest_delay <= longest_delay:
            raise errors.ConfigError(
                f"the delay goes from shortest_delay ({shortest_delay}) to longest_delay "
                f"({longest_delay}): these must be 0 or more, in this order"
            )
        self._num_cues = num_cues
        self._delays = (shortest_delay, longest_delay)
        self._lanes = np.arange(num_lanes)
        self.cue = np.zeros(num_lanes, np.int64)
        self._delay = np.zeros(num_lanes, np.int64)
        self._position = np.zeros(num_lanes, np.int64)  # Steps since the cue.
        self.action_space = gymnasium.spaces.Discrete(num_cues)
        self.observation_space = gymnasium.spaces.Box(
            0.0, 1.0, shape=(num_cues + _NUM_PARTS,), dtype=np.float32
        )

    def begin(self, lanes: np.ndarray, random: np.random.Generator) -> None:
        """Starts new episodes in those `lanes`, an array of indices."""
        self.cue[lanes] = random.integers(self._num_cues, size=lanes.size)
        self._delay[lanes] = random.integers(*self._delays, size=lanes.size, endpoint=True)
        self._position[lanes] = 0

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Goes one step; returns rewards and whether the episode is over, `[lanes]` each."""
        answering = self._position == self._delay + 1
        self._position += 1
        return (answering & (action == self.cue)).astype(np.float64), answering

    def observation(self, random: np.random.Generator) -> np.ndarray:
        """What is seen now, float32 `[lanes, num_cues + 3]`; all zeros once an episode is over."""
        lanes = self._lanes
        observation = np.zeros((lanes.size, self._num_cues + _NUM_PARTS), np.float32)
        distractor = random.integers(self._num_cues, size=lanes.size)
        shows_cue = self._position == 0
        in_corridor = ~shows_cue & (self._position <= self._delay)
        answers = self._position == self._delay + 1
        symbol = np.where(shows_cue, self.cue, distractor)
        observation[lanes, symbol] = shows_cue | in_corridor
        for part, here in ((_CUE, shows_cue), (_CORRIDOR, in_corridor), (_ANSWER, answers)):
            observation[:, self._num_cues + part] = here
        return observation


class MemoryCorridor(gymnasium.Env):
    """Remember a cue while walking past distractions, then answer with it.

    The first observation shows one of `num_cues` symbols, each as likely as the others. A corridor
    follows, between `shortest_delay` and `longest_delay` steps long, each of which shows a symbol
    drawn at random, independently of the cue. Then comes one observation that only asks for the
    answer; the action taken there ends the episode, with reward 1 if it is the number of the cue
    and 0 if not. Actions before it have no effect.

    Observations are float32 vectors: `num_cues` entries for the symbol shown, then one flag each
    for cue, corridor and answer. The mean return is the share of right answers.

    **Without memory the return is 1 / num_cues, whatever is learned.** The observation that asks
    for the answer is the same vector in every episode. A policy whose action depends on the current
    observation alone therefore answers each episode by the same distribution p over actions. The
    cue is uniform and nothing the policy acts on carries it, so the answer is right with
    probability `sum_c p(c) / num_cues = 1 / num_cues`.

    Args:
      num_cues: Number of symbols, and of actions.
      shortest_delay: Fewest steps of the corridor.
      longest_delay: Most steps of the corridor. An episode takes two steps more.
      render_mode: None, or "rgb_array": a square for each symbol, the one that is shown lit up, on
        green at the cue, grey in the corridor and red where the answer is asked for.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(
        self,
        num_cues: int = 4,
        shortest_delay: int = 6,
        longest_delay: int = 10,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._corridors = _Corridors(1, num_cues, shortest_delay, longest_delay)
        self.action_space = self._corridors.action_space
        self.observation_space = self._corridors.observation_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._corridors.begin(np.zeros(1, np.int64), self.np_random)
        self._shown = self._corridors.observation(self.np_random)[0]
        return self._shown.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, over = self._corridors.advance(np.asarray([action]))
        self._shown = self._corridors.observation(self.np_random)[0]
        return self._shown.copy(), float(reward[0]), bool(over[0]), False, {}

    def render(self) -> np.ndarray | None:
        """The present observation as a picture, uint8 `[height, width, 3]`."""
        if self.render_mode != "rgb_array":
            return None
        symbols, parts = np.split(self._shown, [-_NUM_PARTS])
        (part,) = np.flatnonzero(parts) if parts.any() else (_CORRIDOR,)
        picture = np.full(
            (2 * _SQUARE, 2 * _SQUARE * symbols.size, 3), _BACKGROUNDS[part], np.uint8
        )
        edge = _SQUARE // 2
        for symbol, lit in enumerate(symbols):
            left = 2 * _SQUARE * symbol + edge
            picture[edge : edge + _SQUARE, left : left + _SQUARE] = 255 if lit else 0
        return picture


class MemoryCorridorVector(gymnasium.vector.VectorEnv):
    """`MemoryCorridor` in many lanes at once, which costs hardly more than in one.

    Args as there, and `num_envs`, the number of lanes.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        num_cues: int = 4,
        shortest_delay: int = 6,
        longest_delay: int = 10,
    ) -> None:
        self._corridors = _Corridors(num_envs, num_cues, shortest_delay, longest_delay)
        self._over = np.zeros(num_envs, np.bool_)
        self.num_envs = num_envs
        self.single_action_space = self._corridors.action_space
        self.single_observation_space = self._corridors.observation_space
        self.action_space = utils.batch_space(self.single_action_space, num_envs)
        self.observation_space = utils.batch_space(self.single_observation_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._corridors.begin(np.arange(self.num_envs), self.np_random)
        self._over = np.zeros(self.num_envs, np.bool_)
        return self._corridors.observation(self.np_random), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        reward, over = self._corridors.advance(np.asarray(actions))
        if self._over.any():  # Their episodes ended with the last step: this one begins another.
            self._corridors.begin(np.flatnonzero(self._over), self.np_random)
        self._over = over
        truncated = np.zeros(self.num_envs, np.bool_)
        return self._corridors.observation(self.np_random), reward, over, truncated, {}


if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        id=ENV_ID,
        entry_point=f"{__name__}:MemoryCorridor",
        vector_entry_point=f"{__name__}:MemoryCorridorVector",
    )
