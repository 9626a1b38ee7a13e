"""What the games of this room share: PettingZoo's turn-based (AEC) protocol.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from actor_learner.support import errors

MASK = "action_mask"


class TurnBasedGame(abc.ABC):
    """A game of two players with `Discrete` moves, of which one moves at a time.

    ```python
    game.reset(seed=1)
    while game.agents:
        observation, reward, terminated, truncated, info = game.last()
        game.step(None if terminated else choose(observation["action_mask"]))
    ```

    An observation is `{"observation": float32, "action_mask": int8}`, from the view of the player
    who asks; the mask is all zeros for a player whose turn it is not. An illegal move raises.
    After the end each player is stepped once more, with None, as in PettingZoo.

    Args:
      num_moves: Moves that exist, legal or not.
      observation_size: Elements of an observation, each from 0 to 1.

    Attributes:
      agents: The players who are left.
      agent_selection: The player to move.
      rewards: Of the last move, by player.
      terminations: Whether the game is over, by player.
    """

    metadata: dict[str, Any] = {"render_modes": [], "is_parallelizable": False}
    possible_agents: Sequence[str] = ("player_0", "player_1")
    render_mode = None

    def __init__(self, num_moves: int, observation_size: int) -> None:
        self._action_space = gymnasium.spaces.Discrete(num_moves)
        self._observation_space = gymnasium.spaces.Dict(
            {
                "observation": gymnasium.spaces.Box(0.0, 1.0, (observation_size,), np.float32),
                MASK: gymnasium.spaces.MultiBinary(num_moves),
            }
        )
        self._nothing = np.zeros(num_moves, np.int8)
        self._random = np.random.default_rng()
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gymnasium.Space:
        """The same for both players."""
        return self._observation_space

    def action_space(self, agent: str) -> gymnasium.Space:
        """The same for both players."""
        return self._action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins a new game; without a seed it goes on drawing from the last one's generator."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._begin(self._random)
        self.agent_selection = self.possible_agents[self._player()]

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """What a player sees now, in arrays of its own."""
        player = self.possible_agents.index(agent)
        on_turn = agent == self.agent_selection and not self.terminations.get(agent, True)
        mask = self._legal().astype(np.int8) if on_turn else self._nothing.copy()
        return {"observation": self._view(player), MASK: mask}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last move, and state of the player to move."""
        agent = self.agent_selection
        return (
            self.observe(agent) if observe else None,
            self._cumulative_rewards[agent],
            self.terminations[agent],
            self.truncations[agent],
            self.infos[agent],
        )

    def step(self, action: int | None) -> None:
        """Moves for `agent_selection`.

        Raises:
          errors.EnvironmentError: If the move is illegal.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._leave(agent, action)
            return
        if action is None or not 0 <= action < self._nothing.size or not self._legal()[action]:
            raise errors.EnvironmentError(
                f"{type(self).__name__}: {action!r} is not a legal move of {agent}; legal are "
                f"{np.flatnonzero(self._legal()).tolist()}. Moves must respect {MASK!r}"
            )
        self._cumulative_rewards[agent] = 0.0
        self._play(int(action))
        payoffs = self._payoffs()
        if payoffs is None:
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self.agent_selection = self.possible_agents[self._player()]
            return
        self.rewards = dict(zip(self.possible_agents, payoffs))
        for each, reward in self.rewards.items():
            self._cumulative_rewards[each] += reward
            self.terminations[each] = True
        self.agent_selection = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]

    def render(self) -> None:  # noqa: B027 - Nothing is drawn unless a game does.
        """Draws nothing."""

    def close(self) -> None:  # noqa: B027 - Most games have nothing open.
        """Leaves nothing open."""

    def _leave(self, agent: str, action: int | None) -> None:
        if action is not None:
            raise errors.EnvironmentError(
                f"{type(self).__name__}: the game is over, and {agent} cannot move: step it with "
                "None, or reset"
            )
        self.agents.remove(agent)
        for each in (self.terminations, self.truncations, self.rewards, self._cumulative_rewards):
            del each[agent]
        del self.infos[agent]
        if self.agents:
            self.agent_selection = self.agents[0]

    @abc.abstractmethod
    def _begin(self, random: np.random.Generator) -> None:
        """Sets up a new game."""

    @abc.abstractmethod
    def _player(self) -> int:
        """Whose turn it is, 0 or 1."""

    @abc.abstractmethod
    def _legal(self) -> np.ndarray:
        """Which moves are legal now, bool `[num_moves]`."""

    @abc.abstractmethod
    def _play(self, move: int) -> None:
        """Makes a legal move."""

    @abc.abstractmethod
    def _payoffs(self) -> tuple[float, float] | None:
        """What each player has won, once the game is over; None before."""

    @abc.abstractmethod
    def _view(self, player: int) -> np.ndarray:
        """What a player sees, float32 `[observation_size]`, an array of its own."""
