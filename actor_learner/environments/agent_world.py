"""`AgentWorld`: a world with many agents as an environment whose lanes are the agents' slots."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Union

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import policy_step as policy_step_lib
from tf_agents.trajectories import time_step as ts

from actor_learner import agent_spec
from actor_learner.environments import many_agents, seeding, slot_group, specs, world_lanes
from actor_learner.support import configurable, errors, extras

WorldSource = Union[str, Callable[..., many_agents.World]]


@configurable.register
class AgentWorld(py_environment.PyEnvironment):
    """Presents the agents of one policy as lanes, so that everything for lanes works for agents.

    A lane of this environment is a *slot*: one agent in one copy of the world. What the policy
    `main` acts for, with `num_envs` copies, are `num_envs` times as many slots as it has agents,
    copy by copy. The agents of other policies live inside: whoever `install`s a policy for them, or
    their spec's `frozen` one, is asked for their actions in each step.

    A slot without an agent, which has ended or not joined yet, gives LAST step after step; from
    LAST it goes to FIRST when an agent joins. In a world of turns, a slot that waits gives MID with
    the observation it had and no reward; `present` tells who met something.

    Args:
      world: Makes one copy, of PettingZoo or like its worlds (`many_agents`): a callable, or
        `"module:name"` of one, such as `"pettingzoo.classic.tictactoe_v3:env"`.
      num_envs: Copies of the world.
      agents: `AgentSpec`s; the first that matches an agent's name says who acts for it. None at all
        is one policy, `main`, for everybody.
      world_kwargs: Arguments of `world`.
      mask_from_info: Whether the legal actions are in the infos, as `action_mask`, rather than in
        observations.
      state: Adds a part `state` to observations, for `ppo.central_critic`: `"observations"` is what
        all agents of the same policy and copy observe, one after the other; `"world"` is what the
        world's `state()` returns, after `reset` and each step.
      seed: Of all copies, at the first `reset`; see `seed()`.
      discount: Of steps that do not terminate.
      check_finite: Whether observations and rewards that are NaN or infinite are refused.

    Raises:
      errors.ConfigError: If an agent matches no spec, or no agent is left for the policy `main`.
      errors.SpecMismatchError: If agents that share a policy have different spaces.
    """

    def __init__(
        self,
        world: WorldSource,
        num_envs: int = 1,
        *,
        agents: Sequence[agent_spec.AgentSpec] = (),
        world_kwargs: Mapping[str, Any] | None = None,
        mask_from_info: bool = False,
        state: str | None = None,
        seed: int | None = None,
        discount: float = 1.0,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        if num_envs < 1:
            raise errors.ConfigError(f"num_envs is {num_envs}: there must be at least one lane")
        make = world_maker(world, world_kwargs)
        worlds = [make() for _ in range(num_envs)]
        self._name = world if isinstance(world, str) else many_agents.name_of(worlds[0])
        if state not in (None, slot_group.OBSERVATIONS, slot_group.WORLD):
            raise errors.ConfigError(
                f"AgentWorld.state must be '{slot_group.OBSERVATIONS}' or '{slot_group.WORLD}', "
                f"got {state!r}"
            )
        self._state = state
        if state == slot_group.WORLD:
            if not hasattr(worlds[0], "state"):
                raise errors.ConfigError(
                    f"AgentWorld.state is '{state}', but {self._name} has no state(): use "
                    f"'{slot_group.OBSERVATIONS}'"
                )
            for each in worlds:
                each.reset()  # Before an episode most have no state whose size could be seen.
        self._closed = False
        self._pending_seed: int | None = None
        self.check_finite = check_finite
        assigned = agent_spec.assign(
            worlds[0].possible_agents, list(agents) or [agent_spec.AgentSpec()]
        )
        if agent_spec.MAIN not in assigned:
            raise errors.ConfigError(
                f"no agent of {self._name} ({', '.join(worlds[0].possible_agents)}) is left for "
                f"the policy {agent_spec.MAIN!r}, which is trained: AgentWorld.agents gives all to "
                f"{', '.join(assigned)}"
            )
        self._groups = {
            policy: self._make_group(policy, members, worlds, discount, mask_from_info)
            for policy, members in assigned.items()
        }
        self._lanes = world_lanes.WorldLanes(worlds, self._groups, self._name)
        self._main = self._groups[agent_spec.MAIN]
        self._time_step_spec = ts.time_step_spec(self._main.observation_spec, self.reward_spec())
        self._residents: dict[str, Any] = {}
        self._specs = {policy: _acting_spec(members) for policy, members in assigned.items()}
        for policy, spec in self._specs.items():
            frozen = spec.frozen
            if frozen is not None:
                group = self._groups[policy]
                self.install(
                    policy,
                    frozen(
                        group.num_slots,
                        ts.time_step_spec(group.observation_spec),
                        group.action_spec,
                        seed or 0,
                    ),
                )
        if seed is not None:
            self.seed(seed)

    @property
    def name(self) -> str:
        """The world's name."""
        return self._name

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._main.num_slots

    @property
    def turn_based(self) -> bool:
        """Whether agents act one at a time."""
        return self._lanes.turn_based

    @property
    def groups(self) -> dict[str, slot_group.SlotGroup]:
        """The slots of each policy, by its name."""
        return self._groups

    @property
    def trained_policies(self) -> list[str]:
        """Names of the policies besides `main` that are trained, too."""
        return [policy for policy, spec in self._specs.items() if spec.agent is not None]

    def spec_of(self, policy: str) -> agent_spec.AgentSpec:
        """The spec that says who acts for the agents of a policy."""
        return self._specs[policy]

    @property
    def present(self) -> np.ndarray:
        """`[slots]`: who began, went on or ended in the latest step; the others wait or are out."""
        return self._main.present

    @property
    def num_waiting(self) -> int:
        """How many slots wait for their turn, and take no step when the next one is taken."""
        return self._main.num_waiting

    def install(self, policy: str, resident: Any) -> None:
        """Lets `resident` act for the slots of another policy than `main`.

        Args:
          policy: Name of the policy.
          resident: Has `act(time_step)`, whose answer has an `action`, and `reset()`, as inference
            streams have. If it has `observe(transition)`, it is called with `(time_step,
            policy_step, next_time_step)` after each step.
        """
        if policy == agent_spec.MAIN or policy not in self._groups:
            others = [name for name in self._groups if name != agent_spec.MAIN]
            raise errors.ConfigError(
                f"{policy!r} is not a policy inside {self._name}; those are: {others}"
            )
        self._residents[policy] = resident

    def observation_spec(self) -> specs.SpecNest:
        return self._main.observation_spec

    def action_spec(self) -> specs.SpecNest:
        return self._main.action_spec

    def time_step_spec(self) -> ts.TimeStep:
        return self._time_step_spec

    def seed(self, seed: int) -> int:
        """Seeds all copies from one number, at the next `reset()`; each gets one of its own."""
        self._pending_seed = seeding.checked_seed(seed)
        return seed

    def get_info(self) -> dict[str, Any]:
        """Who is present; see `present`."""
        return {"present": self.present}

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """What the first copy of the world looks like, if it can be drawn."""
        return np.asarray(self._lanes.render())

    def close(self) -> None:
        """Closes all copies; further calls do nothing."""
        if not self._closed:
            self._closed = True
            self._lanes.close()

    def _reset(self) -> ts.TimeStep:
        self._require_residents()
        seed, self._pending_seed = self._pending_seed, None
        self._lanes.reset(seed)
        for resident in self._residents.values():
            resident.reset()
        return self._main.time_step

    def _step(self, action: Any) -> ts.TimeStep:
        actions = {agent_spec.MAIN: action}
        answers = {}
        for policy, resident in self._residents.items():
            time_step = self._groups[policy].time_step
            response = resident.act(time_step)
            actions[policy] = response.action
            answers[policy] = (time_step, response)
        self._lanes.step(actions)
        for policy, (time_step, response) in answers.items():
            observe = getattr(self._residents[policy], "observe", None)
            if observe is not None:
                policy_step = policy_step_lib.PolicyStep(
                    response.action, response.previous_state, response.policy_info
                )
                observe((time_step, policy_step, self._groups[policy].time_step))
        return self._main.time_step

    def _require_residents(self) -> None:
        missing = set(self._groups) - set(self._residents) - {agent_spec.MAIN}
        trained = sorted(missing.intersection(self.trained_policies))
        if trained:
            raise errors.ConfigError(
                f"the policies {trained} of {self._name} are trained by learners of their own, "
                "and nobody acts for them here: install() one for each"
            )
        if missing:
            raise errors.ConfigError(
                f"nobody acts for the policies {sorted(missing)} of {self._name}: set "
                "AgentSpec.frozen or AgentSpec.agent for them, or install() one"
            )

    def _make_group(
        self,
        policy: str,
        members: list[tuple[str, agent_spec.AgentSpec]],
        worlds: Sequence[many_agents.World],
        discount: float,
        mask_from_info: bool,
    ) -> slot_group.SlotGroup:
        world, first = worlds[0], members[0][0]
        for kind in ("observation_space", "action_space"):
            space = getattr(world, kind)
            for agent, _ in members[1:]:
                if space(agent) != space(first):
                    raise errors.SpecMismatchError(
                        f"{self._name}: agents {first!r} and {agent!r} share the policy {policy!r} "
                        f"but differ in their {kind}: {space(first)} and {space(agent)}. Give them "
                        "policies of their own (AgentSpec.policy), or make the spaces alike"
                    )
        return slot_group.SlotGroup(
            policy,
            members,
            len(worlds),
            world.observation_space(first),
            world.action_space(first),
            discount=discount,
            mask_from_info=mask_from_info,
            name=self._name,
            check_finite=self.check_finite,
            state=self._state,
            world_states=functools.partial(_states, worlds),
        )


def _states(worlds: Sequence[Any]) -> np.ndarray:
    """What the worlds' `state()` return, `[lanes, size]`."""
    return np.stack([np.ravel(world.state()) for world in worlds])


def _acting_spec(members: list[tuple[str, agent_spec.AgentSpec]]) -> agent_spec.AgentSpec:
    """Of the specs that share a policy, the one that says who acts."""
    specs = [spec for _, spec in members]
    return next((spec for spec in specs if spec.frozen or spec.agent), specs[0])


def names_world(source: Any) -> bool:
    """Whether this makes a world with many agents, or is the `"module:name"` of what does.

    `"module:Id-v0"`, with a registered id, is a Gymnasium environment instead.
    """
    if not isinstance(source, str):
        return callable(source)
    module_name, colon, name = source.partition(":")
    if not colon or not name.isidentifier():
        return False
    try:
        return hasattr(importlib.import_module(module_name), name)
    except ImportError:
        # PettingZoo's own are worlds even where it is missing, which the maker then says.
        return module_name.split(".")[0] == "pettingzoo"


def world_maker(
    world: WorldSource, world_kwargs: Mapping[str, Any] | None = None
) -> Callable[[], many_agents.World]:
    """A function that makes one copy of a world.

    Raises:
      errors.ConfigError: If a text names nothing that can be called.
      errors.MissingExtraError: If PettingZoo is needed and not installed.
    """
    if isinstance(world, str):
        module_name, colon, name = world.partition(":")
        if not colon:
            raise errors.ConfigError(
                f'world is {world!r}: write "module:name" of what makes it, such as '
                "'pettingzoo.classic.tictactoe_v3:env'"
            )
        if module_name.split(".")[0] == "pettingzoo":
            extras.require("pettingzoo", "multiagent")
        try:
            made = getattr(importlib.import_module(module_name), name)
        except (ImportError, AttributeError) as error:
            raise errors.ConfigError(f"world {world!r} cannot be imported: {error}") from error
    else:
        made = world
    if not callable(made):
        raise errors.ConfigError(
            f"world is {made!r}: it must be a function or class that makes a world"
        )
    return functools.partial(made, **(world_kwargs or {}))
