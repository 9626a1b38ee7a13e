"""Worlds with many agents whose observations and rewards say who is where in which episode.

Agents skip turns, end early and join late, by a schedule. `play` is an independent reference: it
drives one copy of a world by PettingZoo's rules, one agent at a time, without any batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np

AGENTS = ["walker_0", "walker_1", "runner_0"]

# Of each episode, by turns: in which step each agent joins, and in which it ends, and how.
SCHEDULES = (
    {"walker_0": (0, 5, "terminated"), "walker_1": (0, 2, "truncated"), "runner_0": (3, 5, "both")},
    {
        "walker_0": (0, 3, "terminated"),
        "walker_1": (1, 3, "terminated"),
        "runner_0": (0, 1, "truncated"),
    },
    {
        "walker_0": (0, 4, "truncated"),
        "walker_1": (0, 4, "terminated"),
        "runner_0": (0, 4, "truncated"),
    },
)
NUM_ACTIONS = 5


def choose(observation: np.ndarray) -> np.ndarray:
    """The action for observations `[..., 4]`: a legal one that depends on all of them."""
    weights = np.array([1, 3, 7, 11])
    index = (np.asarray(observation, np.int64) * weights).sum(-1) % 3
    return (np.asarray(observation, np.int64)[..., 2] + index) % NUM_ACTIONS


def legal(step: int) -> np.ndarray:
    """Three actions in a row are legal, which ones depends on the step."""
    mask = np.zeros(NUM_ACTIONS, np.int8)
    mask[(step + np.arange(3)) % NUM_ACTIONS] = 1
    return mask


class _Counting:
    """What both worlds share: observation `[lane's seed, episode, step, agent]`."""

    metadata = {"name": "counting_world"}

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self._seed = 0
        self._episode = -1

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Dict(
            {
                "observation": gymnasium.spaces.Box(0.0, 10_000.0, (4,), np.float32),
                "action_mask": gymnasium.spaces.MultiBinary(NUM_ACTIONS),
            }
        )

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(NUM_ACTIONS)

    def close(self) -> None:
        self.agents = []

    def _begin(self, seed: int | None) -> None:
        if seed is not None:
            self._seed, self._episode = seed % 1000, -1
        self._episode += 1
        self._step = 0

    @property
    def _schedule(self) -> dict[str, tuple[int, int, str]]:
        return SCHEDULES[(self._episode + self._seed) % len(SCHEDULES)]

    def _taking_part(self) -> list[str]:
        return [a for a in AGENTS if self._schedule[a][0] <= self._step < self._schedule[a][1]]

    def _observe(self, agent: str, step: int) -> dict[str, np.ndarray]:
        where = [self._seed, self._episode, step, AGENTS.index(agent)]
        return {"observation": np.array(where, np.float32), "action_mask": legal(step)}

    def _reward(self, agent: str, action: int) -> float:
        return 100.0 * AGENTS.index(agent) + 10.0 * self._step + action

    def _check(self, agent: str, action: int, step: int) -> None:
        if not legal(step)[action]:
            raise ValueError(f"action {action} of {agent} is illegal in step {step}")


class CountingParallelWorld(_Counting):
    """All agents that take part act at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self._begin(seed)
        self.agents = self._taking_part()
        return {a: self._observe(a, 0) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, ...]:
        if set(actions) != set(self.agents):
            raise ValueError(f"actions of {sorted(actions)}, but {self.agents} take part")
        for agent, action in actions.items():
            self._check(agent, action, self._step)
        rewards = {agent: self._reward(agent, action) for agent, action in actions.items()}
        acted = self.agents
        self._step += 1
        self.agents = self._taking_part()
        there = [agent for agent in AGENTS if agent in acted or agent in self.agents]
        how = {a: self._schedule[a][2] if a not in self.agents else "" for a in there}
        return (
            {a: self._observe(a, self._step) for a in there},
            {a: rewards.get(a, 0.0) for a in there},
            {a: how[a] in ("terminated", "both") for a in there},
            {a: how[a] in ("truncated", "both") for a in there},
            {a: {} for a in there},
        )


class CountingTurnWorld(_Counting):
    """Agents act one at a time; `runner_0` only every other round, and gets others' rewards too.

    A round is a step of the schedule. Every action rewards the one who acts, and all others who
    take part by 1: rewards come between an agent's turns.
    """

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self._begin(seed)
        self._begin_round([])

    def last(self) -> tuple[Any, float, bool, bool, dict]:
        agent = self.agent_selection
        how = self._how.get(agent, "")
        return (
            self._observe(agent, self._step),
            self._given[agent],
            how in ("terminated", "both"),
            how in ("truncated", "both"),
            {},
        )

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if agent in self._how:
            if action is not None:
                raise ValueError(f"{agent} has ended, its action must be None, not {action}")
            self.agents.remove(agent)
        else:
            self._check(agent, action, self._step)
            self._given[agent] = 0.0
            for other in self.agents:
                self._given[other] += self._reward(agent, action) if other == agent else 1.0
        self._turns.pop(0)
        if not self._turns:
            here = [agent for agent in self.agents if agent not in self._how]
            self._step += 1
            self._begin_round(here)
        elif self._turns:
            self.agent_selection = self._turns[0]

    def _begin_round(self, here: list[str]) -> None:
        """Those that end hear so first; then whoever takes part, the runner in even rounds."""
        now = self._taking_part()
        if self._step == 0:
            self._given: dict[str, float] = {}
        self._how = {a: self._schedule[a][2] for a in here if a not in now}
        for agent in now:
            if agent not in here:
                self._given[agent] = 0.0
        self.agents = [a for a in AGENTS if a in self._how or a in now]
        acting = [a for a in now if not a.startswith("runner") or self._step % 2 == 0]
        self._turns = [*self._how, *acting]
        if self.agents and not self._turns:
            self._step += 1
            self._begin_round(now)
            return
        if self._turns:
            self.agent_selection = self._turns[0]


class Step(NamedTuple):
    """One step of one agent."""

    observation: tuple[float, ...]
    mask: tuple[int, ...]
    action: int
    reward: float
    discount: float
    next_observation: tuple[float, ...]
    is_first: bool
    is_last: bool


def play(world: Any, seed: int, ticks: int) -> dict[str, list[Step]]:
    """What each agent's episodes consist of: by PettingZoo's rules, agent by agent."""
    steps: dict[str, list[Step]] = {agent: [] for agent in AGENTS}
    pending: dict[str, tuple[dict, int, bool]] = {}

    def meet(agent, observation, reward, terminated, truncated):
        if agent in pending:
            before, action, is_first = pending.pop(agent)
            steps[agent].append(
                Step(
                    tuple(before["observation"].tolist()),
                    tuple(before["action_mask"].tolist()),
                    action,
                    float(reward),
                    0.0 if terminated else 1.0,
                    tuple(observation["observation"].tolist()),
                    is_first,
                    terminated or truncated,
                )
            )

    known: set[str] = set()
    latest: dict[str, dict] = {}
    if hasattr(world, "last"):
        world.reset(seed=seed)
        for _ in range(ticks):
            if not world.agents:
                world.reset()
                pending.clear(), known.clear()
                continue
            while world.agents:
                agent = world.agent_selection
                observation, reward, terminated, truncated, _ = world.last()
                meet(agent, observation, reward, terminated, truncated)
                if terminated or truncated:
                    world.step(None)
                    continue
                action = int(choose(observation["observation"]))
                pending[agent] = (observation, action, agent not in known)
                known.add(agent)
                world.step(action)
                break
            # What the next agent meets belongs to this tick too.
        return steps
    observations, _ = world.reset(seed=seed)
    latest = dict(observations)
    for _ in range(ticks):
        if not world.agents:
            observations, _ = world.reset()
            latest = dict(observations)
            known.clear()
            continue
        actions = {}
        for agent in world.agents:
            actions[agent] = int(choose(latest[agent]["observation"]))
            pending[agent] = (latest[agent], actions[agent], agent not in known)
            known.add(agent)
        observations, rewards, terminations, truncations, _ = world.step(actions)
        for agent in actions:
            meet(
                agent,
                observations[agent],
                rewards[agent],
                terminations[agent],
                truncations[agent],
            )
        latest = {agent: observations[agent] for agent in world.agents}
    return steps
