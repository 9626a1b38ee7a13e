"""What a world with many agents is: PettingZoo's two protocols, by duck typing.

A world need not inherit from PettingZoo: whatever has these methods is one, and `pettingzoo` itself
(the extra `multiagent`) is needed only for its own worlds.

Agents have names, `possible_agents`, and spaces of their own. Which of them take part at a moment
is `agents`: some may join late, and those that end early leave. An agent's episode runs from its
first observation to its own termination or truncation. When `agents` is empty the world's episode
is over, and the next call is `reset`.

Which actions are legal is said as everywhere: `action_mask` in a Dict observation, or in the info.
"""

from __future__ import annotations

from typing import Any, Protocol, Union

import gymnasium

from actor_learner.support import errors


class _Participants(Protocol):
    """What both kinds of worlds have.

    Attributes:
      possible_agents: Names of all agents that may ever take part, in a fixed order.
      agents: Names of those that take part now; empty once the episode is over.
    """

    possible_agents: list[str]
    agents: list[str]

    def observation_space(self, agent: str) -> gymnasium.Space:
        """The same space whenever it is asked for, before the first `reset` too."""

    def action_space(self, agent: str) -> gymnasium.Space:
        """The same space whenever it is asked for, before the first `reset` too."""

    def close(self) -> None:
        """Ends whatever the world has opened."""


class ParallelWorld(_Participants, Protocol):
    """A world in which all agents that take part act at once (PettingZoo's `ParallelEnv`)."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begins an episode: observations and infos of the agents that take part from the start."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Takes the actions of all of `agents`.

        Returns:
          `(observations, rewards, terminations, truncations, infos)`, each a dictionary by agent,
          with all agents that acted and those that join. An agent whose termination or truncation
          is true gets its final observation here and is not in `agents` any more.
        """


class TurnWorld(_Participants, Protocol):
    """A world in which one agent acts at a time (PettingZoo's `AECEnv`).

    Attributes:
      agent_selection: Whose turn it is. An agent whose episode has ended has one more turn, at
        which it hears so from `last()`; its action is then None.
    """

    agent_selection: str

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins an episode."""

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Of the agent whose turn it is: `(observation, reward, terminated, truncated, info)`.

        The reward is what it has been given since its last turn, whoever's turns that took.
        """

    def step(self, action: Any) -> None:
        """Takes the action of the agent whose turn it is, and goes on to the next turn."""


World = Union[ParallelWorld, TurnWorld]

_BOTH = ("possible_agents", "observation_space", "action_space", "reset", "step")


def is_turn_based(world: Any) -> bool:
    """Whether agents act one at a time, rather than at once.

    Raises:
      errors.SpecMismatchError: If it is no world with many agents at all.
    """
    missing = [name for name in _BOTH if not hasattr(world, name)]
    if missing:
        raise errors.SpecMismatchError(
            f"{type(world).__module__}.{type(world).__name__} is not a world with many agents: it "
            f"has no {', '.join(missing)}. A world has what PettingZoo's ParallelEnv or AECEnv has"
        )
    return callable(getattr(world, "last", None))


def name_of(world: Any) -> str:
    """What to call a world in messages: the name in its `metadata`, or its class."""
    return getattr(world, "metadata", {}).get("name", type(world).__name__)
