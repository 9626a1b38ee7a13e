"""The agent slots of one policy, over all lanes of a world: what each of them met, as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import gymnasium
import numpy as np
import tree
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import agent_spec
from actor_learner.environments import finite, nests, specs
from actor_learner.environments import mask_from_info as masks
from actor_learner.support import errors

OBSERVATIONS, WORLD = "observations", "world"

FIRST, MID, LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))


class SlotGroup:
    """Gathers what agents meet during a tick into one `TimeStep`, leaves `[slots, ...]`.

    Slot `lane * len(agents) + i` is agent `i` in that lane. A slot that takes no part, because its
    agent has ended or not joined yet, is LAST, tick after tick: the row from LAST to whatever comes
    is a boundary row, which nobody counts or learns from. A slot that waits for its turn is MID,
    with the observation it had and no reward; `present` tells it from one that has met something.

    ```python
    group.begin()
    group.meet(slot, observation, reward, terminated, truncated, info)  # For each that met some.
    time_step = group.finish()
    ```

    Args:
      policy: Name of the policy that acts for these agents.
      agents: Names of the agents, with the spec that each has matched.
      num_lanes: Copies of the world.
      observation_space: Of every one of these agents.
      action_space: Of every one of these agents.
      discount: Of steps that do not terminate.
      mask_from_info: Whether the legal actions are in the info, as `action_mask`.
      name: Of the world, for errors.
      check_finite: Whether NaN and infinity are refused.
      state: What a central critic sees, as a part `state` of observations: `OBSERVATIONS`, those of
        all agents of this policy in the same copy, or `WORLD`, the world's own `state()`.
      world_states: Returns what `state()` of each copy gives, `[lanes, size]`, for `WORLD`.

    Attributes:
      policy: As given.
      agents: Their names.
      num_slots: Agents times lanes.
      observation_spec: Of one slot.
      action_spec: Of one slot; discrete actions count from 0.
      present: `[slots]`, who met something in the latest tick: began, went on or ended.
      num_waiting: How many slots wait for their turn.
      time_step: What `finish` returned last.
    """

    def __init__(
        self,
        policy: str,
        agents: Sequence[tuple[str, agent_spec.AgentSpec]],
        num_lanes: int,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        *,
        discount: float,
        mask_from_info: bool,
        name: str,
        check_finite: bool,
        state: str | None = None,
        world_states: Callable[[], np.ndarray] | None = None,
    ) -> None:
        self.policy = policy
        self.agents = [agent for agent, _ in agents]
        self.num_slots = len(agents) * num_lanes
        self._name = name
        self._discount = discount
        self._mask_from_info = mask_from_info
        if mask_from_info:
            observation_space = masks.space_with_mask(observation_space, action_space)
        self._frames = _frame_stack(policy, agents)
        self._limits = [spec.max_num_steps for _, spec in agents] * num_lanes
        self._has_limits = any(self._limits)
        spec = specs.space_to_spec(observation_space, "observation")
        self._read = _readers(spec)
        self._met_spec = _stacked(spec, self._frames)  # Without the state.
        self._num_lanes = num_lanes
        self._state = state
        self._world_states = world_states
        self.observation_spec = self._met_spec
        self.action_spec = specs.space_to_spec(action_space, "action", zero_based=True)
        self.encode_action = specs.compile_action(action_space, self.num_slots)
        self._is_discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        self._is_nested = isinstance(action_space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple))
        leaves = tree.flatten(spec)
        self._shapes = [tuple(leaf.shape) for leaf in leaves]
        self._latest = [
            np.zeros((self.num_slots, *leaf.shape), leaf.dtype)
            for leaf in tree.flatten(self._met_spec)
        ]
        if state is not None:
            size = self._states().shape[-1] if state == OBSERVATIONS else world_states().shape[-1]
            state_spec = array_spec.ArraySpec((size,), np.float32, "observation/state")
            self.observation_spec = _beside(self._met_spec, state_spec)
        self._finite = None
        if check_finite:
            reward_spec = ts.time_step_spec(self.observation_spec).reward
            self._finite = finite.FiniteCheck(
                f"{name}, policy {policy!r}",
                reward_spec,
                self.observation_spec,
                self.num_slots,
                "AgentWorld.check_finite",
            )
        self.forget()

    def forget(self) -> None:
        """Ends all agents' episodes; what was observed stays in the slots until they begin anew."""
        self._running = [False] * self.num_slots
        self._lengths = [0] * self.num_slots
        self.present = np.zeros(self.num_slots, np.bool_)
        self.num_waiting = 0

    def begin(self) -> None:
        """Begins a tick in which nobody has met anything yet."""
        self._observations = [leaf.copy() for leaf in self._latest]
        self._step_type = [MID if running else LAST for running in self._running]
        self._reward = [0.0] * self.num_slots
        self._discounts = [self._discount] * self.num_slots
        self._present = [False] * self.num_slots

    def meet(
        self,
        slot: int,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        """Takes in what an agent met; the first time after the end of an episode it begins another.

        One that ends before it has begun, and so never acted, is left out.
        """
        over = terminated or truncated
        if not self._running[slot]:
            if over:
                return
            self._running[slot] = True
            self._lengths[slot] = 0
            self._step_type[slot] = FIRST
            self._discounts[slot] = 1.0
        else:
            self._reward[slot] = reward
            if self._has_limits:
                self._lengths[slot] += 1
                limit = self._limits[slot]
                over = over or (limit is not None and self._lengths[slot] >= limit)
            if over:
                self._running[slot] = False
                self._step_type[slot] = LAST
                if terminated:
                    self._discounts[slot] = 0.0
            else:
                self._step_type[slot] = MID
        self._present[slot] = True
        self._put(slot, observation, info)

    def finish(self) -> ts.TimeStep:
        """Ends the tick; the arrays belong to the caller and are never written again."""
        self._latest = self._observations
        self.present = np.array(self._present, np.bool_)
        step_type = np.array(self._step_type, np.int32)
        self.num_waiting = int(np.count_nonzero((step_type == MID) & ~self.present))
        self.time_step = ts.TimeStep(
            step_type,
            np.array(self._reward, np.float32),
            np.array(self._discounts, np.float32),
            self._observation(),
        )
        if self._finite is not None:
            self._finite.step(self.time_step.reward, self.time_step.observation, step_type == FIRST)
        return self.time_step

    def _observation(self) -> Any:
        met = tree.unflatten_as(self._met_spec, self._latest)
        return met if self._state is None else _beside(met, self._states())

    def _states(self) -> np.ndarray:
        """What a central critic sees of each slot, `[slots, size]`: the same for all of a copy."""
        if self._state == WORLD:
            states = self._world_states()
        else:
            leaves = zip(tree.flatten_with_path(self._met_spec), self._latest)
            parts = [
                leaf.reshape(self._num_lanes, -1)
                for (path, _), leaf in leaves
                if masks.KEY not in path
            ]
            states = np.concatenate(parts, axis=1)
        return np.repeat(states.astype(np.float32), len(self.agents), axis=0)

    def actions(self, action: Any) -> Sequence[Any]:
        """Actions `[slots, ...]`, checked, one by one as the world takes them."""
        encoded = self.encode_action(action)
        if self._is_discrete:
            return encoded.tolist()
        if self._is_nested:
            return [
                tree.map_structure(lambda leaf, slot=slot: leaf[slot], encoded)
                for slot in range(self.num_slots)
            ]
        return encoded

    def _put(self, slot: int, observation: Any, info: dict[str, Any]) -> None:
        if self._mask_from_info:
            observation = masks.beside(observation, info, self._name)
        frames = self._frames
        for leaf, read, shape in zip(self._observations, self._read, self._shapes):
            value = read(observation)
            if np.shape(value) != shape:
                raise errors.EnvironmentError(
                    f"{self._name}: agent {self.agents[slot % len(self.agents)]!r} observed shape "
                    f"{np.shape(value)}, its observation space says {shape}; `actor-learner "
                    "check-env` looks for what is wrong with a world"
                )
            if frames is None:
                leaf[slot] = value
            elif self._step_type[slot] == FIRST:
                leaf[slot] = value  # All frames alike.
            else:
                leaf[slot, :-1] = leaf[slot, 1:].copy()
                leaf[slot, -1] = value


def _beside(met: Any, state: Any) -> dict[str, Any]:
    """An observation, or its spec, with the state as one more part."""
    parts = dict(met) if isinstance(met, Mapping) else {"observation": met}
    return {**parts, "state": state}


def _frame_stack(policy: str, agents: Sequence[tuple[str, agent_spec.AgentSpec]]) -> int | None:
    stacks = {agent: spec.frame_stack for agent, spec in agents}
    if len(set(stacks.values())) > 1:
        raise errors.ConfigError(
            f"agents that share the policy {policy!r} have different AgentSpec.frame_stack: "
            f"{stacks}; give them the same, or policies of their own"
        )
    return next(iter(stacks.values()))


def _stacked(spec: Any, frames: int | None) -> Any:
    """The spec of the latest `frames` observations, along a new first dimension."""
    if frames is None:
        return spec
    if nests.children(spec) is not None:
        raise errors.ConfigError(
            "AgentSpec.frame_stack is for observations that are one array, these are "
            f"{spec}: leave it out, or stack frames inside the world"
        )

    def bound(value: Any) -> Any:
        return value if np.ndim(value) == 0 else np.repeat(value[np.newaxis], frames, axis=0)

    shape = (frames, *spec.shape)
    if not hasattr(spec, "minimum"):
        return type(spec)(shape, spec.dtype, spec.name)
    return type(spec)(shape, spec.dtype, bound(spec.minimum), bound(spec.maximum), spec.name)


def _readers(spec: Any) -> list[Callable[[Any], Any]]:
    """A function for each leaf of an observation, in the order of its flattened spec."""
    if nests.children(spec) is None:
        return [lambda observation: observation]

    def reader(path: tuple[Any, ...]) -> Callable[[Any], Any]:
        def read(observation: Any) -> Any:
            for key in path:
                observation = observation[key]
            return observation

        return read

    return [reader(path) for path, _ in tree.flatten_with_path(spec)]
