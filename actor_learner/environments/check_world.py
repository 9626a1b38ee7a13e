"""The checks of a world with many agents: PettingZoo's rules, and what is needed beyond them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from actor_learner.environments import check_values, many_agents, mask_from_info, specs
from actor_learner.support import errors

_REPRODUCED_STEPS = 50

Meeting = tuple[str, Any, float, bool, bool]  # Agent, observation, reward, terminated, truncated.


def check(
    make: Callable[[], many_agents.World],
    findings: check_values.Findings,
    *,
    num_steps: int,
    seed: int,
) -> None:
    """Adds the violations of the worlds that `make` returns to `findings`."""
    world = make()
    try:
        if not _check_spaces(world, findings):
            return
        ended = _run(world, findings, num_steps, seed)
    finally:
        world.close()
    if not ended:
        findings.add(
            "no end",
            f"note: no episode ended within {num_steps} steps: is there a time limit?",
        )
    rollouts = []
    for _ in range(2):
        world = make()
        try:
            rollouts.append(list(_play(world, seed, _REPRODUCED_STEPS)))
        except Exception as error:
            findings.add(("raised", type(error)), f"{type(error).__name__}: {error}")
            return
        finally:
            world.close()
    for step, (one, other) in enumerate(zip(*rollouts)):
        if not check_values.same(one, other):
            findings.add(
                "reproducible",
                f"reset(seed={seed}) and the same actions gave something else the second time, "
                f"from step {step} on",
            )
            return


def _check_spaces(world: Any, findings: check_values.Findings) -> bool:
    """Returns whether every agent has spaces that can be used."""
    good = bool(world.possible_agents)
    if not good:
        findings.add("agents", "possible_agents is empty")
    for agent in world.possible_agents:
        for kind in ("observation_space", "action_space"):
            try:
                space = getattr(world, kind)(agent)
                specs.space_to_spec(space, kind.split("_")[0])
            except errors.SpecMismatchError as error:
                findings.add(("space", agent, kind), f"{agent}: {error}")
                good = False
            except Exception as error:
                findings.add(
                    ("space", agent, kind),
                    f"{kind}({agent!r}) raised {type(error).__name__}: {error}",
                )
                good = False
    return good


def _run(world: Any, findings: check_values.Findings, num_steps: int, seed: int) -> bool:
    """Returns whether an episode ended."""
    running: set[str] = set()
    ended = False
    memory = check_values.Memory(())
    try:
        for step, meetings in enumerate(_play(world, seed, num_steps)):
            where = f"step {step}"
            if memory.changed():
                findings.add(
                    "aliasing",
                    "observations are written again after they were returned: return copies, or "
                    f"earlier ones change ({where})",
                )
            memory = check_values.Memory([observation for _, observation, *_ in meetings])
            for agent, observation, reward, terminated, truncated in meetings:
                if agent not in world.possible_agents:
                    findings.add("stranger", f"agent {agent!r} is not in possible_agents ({where})")
                    continue
                if not world.observation_space(agent).contains(observation):
                    findings.add(
                        ("observation", agent),
                        f"{agent}: an observation is not in its space "
                        f"{world.observation_space(agent)}: {_short(observation)} ({where})",
                    )
                if not np.all(np.isfinite(reward)) or np.ndim(reward):
                    findings.add(
                        ("reward", agent),
                        f"{agent}: the reward is {reward!r}, not a finite number ({where})",
                    )
                if terminated or truncated:
                    running.discard(agent)
                    ended = True
                else:
                    running.add(agent)
            left = sorted(running - set(world.agents))
            if left:
                findings.add(
                    "left",
                    f"{', '.join(left)} left `agents`, but was neither terminated nor truncated "
                    f"({where})",
                )
                running -= set(left)
    except Exception as error:
        findings.add(("raised", type(error)), f"{type(error).__name__}: {error}")
        return True
    return ended


def _play(world: Any, seed: int, num_steps: int) -> Any:
    """Plays with random legal actions; yields what agents met in each step."""
    random = np.random.default_rng(seed)
    turn_based = many_agents.is_turn_based(world)
    world_seed: int | None = seed
    for agent in world.possible_agents:
        world.action_space(agent).seed(seed)
    while num_steps > 0:
        begun = world.reset() if world_seed is None else world.reset(seed=world_seed)
        world_seed = None
        latest: dict[str, tuple[Any, Mapping[str, Any]]] = {}
        if not turn_based:
            observations, infos = begun
            latest = {a: (observations[a], infos.get(a, {})) for a in world.agents}
            yield [(a, observations[a], 0.0, False, False) for a in world.agents]
        while world.agents and num_steps > 0:
            num_steps -= 1
            if turn_based:
                agent = world.agent_selection
                observation, reward, terminated, truncated, info = world.last()
                over = terminated or truncated
                action = None if over else _action(world, agent, observation, info, random)
                met: list[Meeting] = [(agent, observation, reward, terminated, truncated)]
                if over:
                    world.step(None)
                    yield met
                else:
                    yield met
                    world.step(action)
                continue
            actions = {a: _action(world, a, *latest[a], random) for a in world.agents}
            observations, rewards, terminations, truncations, infos = world.step(actions)
            yield [
                (a, observations[a], rewards[a], terminations[a], truncations[a])
                for a in observations
            ]
            latest = {a: (observations[a], infos.get(a, {})) for a in world.agents}


def _action(
    world: Any, agent: str, observation: Any, info: Mapping[str, Any], random: np.random.Generator
) -> Any:
    """A random action, a legal one where the world says which are."""
    mask = None
    if isinstance(observation, Mapping):
        mask = observation.get(mask_from_info.KEY)
    if mask is None:
        mask = info.get(mask_from_info.KEY)
    space = world.action_space(agent)
    if mask is not None and np.any(mask) and hasattr(space, "n"):
        return int(random.choice(np.flatnonzero(mask))) + int(space.start)
    return space.sample()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
