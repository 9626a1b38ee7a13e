"""`Spread`: agents that must share out landmarks among themselves, a world of ours for tests.

It needs nothing but NumPy, and must not import TensorFlow.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from actor_learner.support import configurable, errors

_MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
_PIXELS, _EDGE = 256, 1.2
_COLORS = np.array([[31, 119, 180], [214, 39, 40], [44, 160, 44], [148, 103, 189]], np.uint8)


@configurable.register
class Spread:
    """Agents on a square are all rewarded for every landmark that one of them is close to.

    A world in which all agents act at once (`many_agents.ParallelWorld`), like MPE's
    `simple_spread`: everybody gets `-(sum over landmarks of the distance of the nearest agent) /
    num_agents`, and `-collision_penalty` for each other agent that it touches. Whoever goes to the
    nearest landmark without a look at the others leaves some alone.

    An agent observes its own position, where each landmark is from there, and where each other
    agent is, the nearest of each first: what all see is alike, and one policy serves all. Actions
    are to stay, or to move by `stride` to one of four sides; the square is [-1, 1] wide.

    Args:
      num_agents: Agents, and landmarks.
      max_steps: After so many steps the episode is truncated.
      stride: How far one move goes.
      collision_penalty: What touching another agent costs each of the two, per step.
    """

    def __init__(
        self,
        num_agents: int = 3,
        max_steps: int = 25,
        stride: float = 0.15,
        collision_penalty: float = 0.1,
    ) -> None:
        if num_agents < 2:
            raise errors.ConfigError(f"Spread.num_agents must be at least 2, got {num_agents}")
        self.metadata = {"name": f"spread_{num_agents}"}
        self.possible_agents = [f"agent_{number}" for number in range(num_agents)]
        self.agents: list[str] = []
        self._num = num_agents
        self._max_steps = max_steps
        self._stride = stride
        self._collision_penalty = collision_penalty
        self._random = np.random.default_rng()
        size = 2 + 2 * num_agents + 2 * (num_agents - 1)
        self._observation_space = gymnasium.spaces.Box(-3.0, 3.0, (size,), np.float32)
        self._action_space = gymnasium.spaces.Discrete(len(_MOVES))

    def observation_space(self, agent: str) -> gymnasium.Space:
        return self._observation_space

    def action_space(self, agent: str) -> gymnasium.Space:
        return self._action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._steps = 0
        self._positions = self._random.uniform(-1, 1, (self._num, 2)).astype(np.float32)
        self._landmarks = self._random.uniform(-1, 1, (self._num, 2)).astype(np.float32)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        chosen = [actions[agent] for agent in self.agents]
        moved = self._positions + self._stride * _MOVES[chosen]
        self._positions = np.minimum(np.maximum(moved, -1.0), 1.0)
        self._steps += 1
        observations = self._observations()
        away = self._landmarks[:, None] - self._positions  # [landmarks, agents, 2]
        uncovered = float(np.sqrt((away * away).sum(-1)).min(1).sum()) / self._num
        touching = (self._apart < self._stride).sum(1) - 1  # Everybody touches itself.
        rewards = (-uncovered - self._collision_penalty * touching).tolist()
        over = self._steps >= self._max_steps
        agents = self.agents
        if over:
            self.agents = []
        return (
            observations,
            dict(zip(agents, rewards)),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )

    def state(self) -> np.ndarray:
        """All there is to know: positions of agents and landmarks, `[4 * num_agents]`."""
        return np.concatenate([self._positions.ravel(), self._landmarks.ravel()])

    def render(self) -> np.ndarray:
        """Draws landmarks as grey rings and agents as disks, uint8 `[256, 256, 3]`."""
        frame = np.full((_PIXELS, _PIXELS, 3), 255, np.uint8)
        axis = np.linspace(-_EDGE, _EDGE, _PIXELS)
        for landmark in self._landmarks:
            away = np.hypot(axis[None, :] - landmark[0], axis[::-1, None] - landmark[1])
            frame[(away < self._stride) & (away > 0.8 * self._stride)] = 150
        for number, agent in enumerate(self._positions):
            away = np.hypot(axis[None, :] - agent[0], axis[::-1, None] - agent[1])
            frame[away < 0.5 * self._stride] = _COLORS[number % len(_COLORS)]
        return frame

    def close(self) -> None:
        """Nothing is open."""

    def _observations(self) -> dict[str, np.ndarray]:
        here = self._positions
        others = here - here[:, None]  # [agents, agents, 2]: where each is, seen from each.
        landmarks = self._landmarks - here[:, None]
        self._apart = np.sqrt((others * others).sum(-1))
        nearest = np.argsort(self._apart, axis=1)[:, 1:]
        closest = np.argsort((landmarks * landmarks).sum(-1), axis=1)
        rows = np.arange(self._num)[:, None]
        seen = np.concatenate(
            [
                here,
                landmarks[rows, closest].reshape(self._num, -1),
                others[rows, nearest].reshape(self._num, -1),
            ],
            axis=1,
        )
        return dict(zip(self.possible_agents, seen))
