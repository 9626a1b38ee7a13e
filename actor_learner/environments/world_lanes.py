"""Copies of a world with many agents, stepped together: one tick of all of them per call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from actor_learner.environments import many_agents, seeding, slot_group
from actor_learner.support import errors


class WorldLanes:
    """Steps lanes by the actions of all policies, and hands what agents met to their groups.

    In a tick a lane in which every agent has ended is reset; any other takes the actions of those
    that are to act: of all that take part, or of the one whose turn it is.

    Args:
      worlds: The lanes, alike.
      groups: Between them they have every agent.
      name: Of the world, for errors.
    """

    def __init__(
        self,
        worlds: Sequence[many_agents.World],
        groups: Mapping[str, slot_group.SlotGroup],
        name: str,
    ) -> None:
        self._worlds = list(worlds)
        self._groups = list(groups.values())
        self._name = name
        self.turn_based = many_agents.is_turn_based(worlds[0])
        self._advance: Callable[[int, Any], None] = (
            self._take_turn if self.turn_based else self._step_all
        )
        # By lane and agent: its group, and its slot there.
        self._places = [
            {
                agent: (group, lane * len(group.agents) + index)
                for group in self._groups
                for index, agent in enumerate(group.agents)
            }
            for lane in range(len(self._worlds))
        ]
        self._acting: list[list[str]] = [[] for _ in self._worlds]  # Who is to act next.
        self._actions: dict[slot_group.SlotGroup, Sequence[Any]] = {}

    def reset(self, seed: int | None) -> None:
        """Begins episodes in all lanes, with seeds of their own if `seed` is given."""
        seeds: Sequence[int | None] = [None] * len(self._worlds)
        if seed is not None:
            seeds = seeding.lane_seeds(seed, len(self._worlds))
        for group in self._groups:
            group.forget()
            group.begin()
        for lane, lane_seed in enumerate(seeds):
            self._reset_lane(lane, lane_seed)
        self._finish()

    def step(self, actions: Mapping[str, Any]) -> None:
        """Takes one tick in every lane.

        Args:
          actions: By policy, `[slots, ...]`; those of slots that are not to act are not looked at.
        """
        for group in self._groups:
            self._actions[group] = group.actions(actions[group.policy])
            group.begin()
        for lane, acting in enumerate(self._acting):
            if acting:
                self._advance(lane, acting)
            else:
                self._reset_lane(lane, None)
        self._finish()

    def close(self) -> None:
        """Closes all lanes."""
        for world in self._worlds:
            world.close()

    def render(self) -> Any:
        """What lane 0 looks like."""
        return self._worlds[0].render()

    def _finish(self) -> None:
        for group in self._groups:
            group.finish()

    def _reset_lane(self, lane: int, seed: int | None) -> None:
        world: Any = self._worlds[lane]
        # Not every world has a seed of its own to go on with.
        begun = world.reset() if seed is None else world.reset(seed=seed)
        if self.turn_based:
            self._next_turn(lane)
        else:
            observations, infos = begun
            for agent in world.agents:
                group, slot = self._places[lane][agent]
                group.meet(slot, observations[agent], 0.0, False, False, infos.get(agent, {}))
            self._acting[lane] = list(world.agents)
        if not self._acting[lane]:
            raise errors.EnvironmentError(
                f"{self._name}: nobody takes part after reset(): `agents` is empty"
            )

    def _step_all(self, lane: int, acting: list[str]) -> None:
        """One step of a lane in which all agents act at once."""
        world: Any = self._worlds[lane]
        places = self._places[lane]
        actions = {}
        for agent in acting:
            group, slot = places[agent]
            actions[agent] = self._actions[group][slot]
        observations, rewards, terminations, truncations, infos = world.step(actions)
        staying = self._acting[lane] = list(world.agents)
        for agent in acting:
            terminated, truncated = terminations[agent], truncations[agent]
            if not (terminated or truncated) and agent not in staying:
                raise errors.EnvironmentError(
                    f"{self._name}: agent {agent!r} left `agents`, but was neither terminated nor "
                    "truncated"
                )
            group, slot = places[agent]
            group.meet(
                slot,
                observations[agent],
                rewards[agent],
                terminated,
                truncated,
                infos.get(agent, {}),
            )
        if len(staying) > len(acting) or any(agent not in acting for agent in staying):
            for agent in staying:
                if agent not in acting:
                    group, slot = places[agent]
                    group.meet(slot, observations[agent], 0.0, False, False, infos.get(agent, {}))

    def _take_turn(self, lane: int, acting: list[str]) -> None:
        """One turn of a lane in which agents act one at a time."""
        group, slot = self._places[lane][acting[0]]
        world: Any = self._worlds[lane]
        world.step(self._actions[group][slot])
        self._next_turn(lane)

    def _next_turn(self, lane: int) -> None:
        """Goes on to the next agent that is to act; tells those that have ended."""
        world: Any = self._worlds[lane]
        self._acting[lane] = []
        while world.agents:
            agent = world.agent_selection
            observation, reward, terminated, truncated, info = world.last()
            group, slot = self._places[lane][agent]
            group.meet(slot, observation, reward, terminated, truncated, info)
            if not (terminated or truncated):
                self._acting[lane] = [agent]
                return
            world.step(None)
