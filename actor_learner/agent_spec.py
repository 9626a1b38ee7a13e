"""Which policy acts for which agents of a world with many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Callable

from actor_learner import collecting
from actor_learner.support import configurable, errors

MAIN = "main"
"""Name of the policy that `Experiment.agent` trains."""


@configurable.register
class AgentSpec:
    """Says who acts for the agents whose names match.

    ```
    AgentWorld.agents = [@seekers/AgentSpec(), @AgentSpec()]
    seekers/AgentSpec.agents = 'seeker_.*'
    seekers/AgentSpec.frozen = @FrozenPolicy
    ```

    The first of `AgentWorld.agents` that matches an agent's name is its own.

    Args:
      agents: Regular expression that must match the whole name of an agent.
      policy: Name of the policy. Specs with the same name share one; agents that share a policy
        need the same spaces. `main` is the policy that `Experiment.agent` trains.
      frozen: Acts and is not trained: called with `(num_slots, time_step_spec, action_spec,
        seed)`, it returns something with `act(time_step)` and `reset()`: `@frozen_policy`,
        `@random_policy`, or one of your own.
      agent: Builds an agent for a policy that is trained by a learner of its own, beside that of
        `Experiment.agent`: `@dqn`, `@ppo`, ... as there.
      replay: The sample stream of that agent, as `Experiment.replay`.
      updates_per_step: Its train steps per step of its agents, as `Experiment.updates_per_step`.
      batch_size: Of its train steps, as `Experiment.batch_size`.
      initial_random_steps: As `Experiment.initial_random_steps`, counted in steps of its agents.
      frame_stack: Observations are the latest so many, along a new first dimension; at the start
        of an agent's episode the first one fills them.
      max_num_steps: After so many steps of its own an agent's episode is cut, as one that is
        truncated: the value of what it observes there is bootstrapped. It plays on in the world,
        and its next episode begins with its next observation.
      deterministic_action: This and what follows are as in `Collecting`, of which each trained
        policy has its own.
    """

    def __init__(
        self,
        agents: str = ".*",
        policy: str = MAIN,
        *,
        frozen: Callable[..., Any] | None = None,
        agent: Callable[..., Any] | None = None,
        replay: Any = None,
        updates_per_step: float | None = None,
        batch_size: int | None = None,
        initial_random_steps: int | None = None,
        frame_stack: int | None = None,
        max_num_steps: int | None = None,
        deterministic_action: bool = False,
        sample_steps: int | None = None,
        bootstrap_steps: int | None = None,
        burn_in_steps: int | None = None,
        tables: Sequence[str] = (),
        copy_size: int | None = None,
        send_full_trajectory: bool = False,
        pad_trajectory: bool = False,
        send_concise_info: bool = False,
        send_after_done: bool = False,
        postprocessors: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        try:
            self._pattern = re.compile(agents)
        except (re.error, TypeError) as error:
            raise errors.ConfigError(
                f"AgentSpec.agents is {agents!r}, not a regular expression: {error}"
            ) from error
        if not isinstance(policy, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", policy):
            raise errors.ConfigError(
                f"AgentSpec.policy is {policy!r}: a name has letters, digits, '_' and '-' only"
            )
        if policy == MAIN and (frozen is not None or agent is not None):
            raise errors.ConfigError(
                f"AgentSpec.{'agent' if frozen is None else 'frozen'} is set for the policy "
                f"{MAIN!r}, which Experiment.agent trains: give it another AgentSpec.policy"
            )
        if frozen is not None and agent is not None:
            raise errors.ConfigError(
                f"the policy {policy!r} has both AgentSpec.frozen and AgentSpec.agent: it is "
                "either frozen or trained"
            )
        training = {
            "replay": replay,
            "updates_per_step": updates_per_step,
            "batch_size": batch_size,
            "initial_random_steps": initial_random_steps,
        }
        # All are passed on, so that gin's bindings of `Collecting`, of `main`, do not reach it.
        of_collecting: dict[str, Any] = {
            "deterministic_action": deterministic_action,
            "sample_steps": sample_steps,
            "bootstrap_steps": bootstrap_steps,
            "burn_in_steps": burn_in_steps,
            "tables": tables,
            "copy_size": copy_size,
            "send_full_trajectory": send_full_trajectory,
            "pad_trajectory": pad_trajectory,
            "send_concise_info": send_concise_info,
            "send_after_done": send_after_done,
            "postprocessors": postprocessors,
        }
        for name, value in {**training, **of_collecting}.items():
            is_left_out = value is None or value is False or value == ()
            if not is_left_out and agent is None:
                raise errors.ConfigError(_unread(name, policy, name in of_collecting))
        for name, value in (("frame_stack", frame_stack), ("max_num_steps", max_num_steps)):
            if value is not None and (value != int(value) or value < 1):
                raise errors.ConfigError(f"AgentSpec.{name} must be 1 or more, got {value!r}")
        self.agents = agents
        self.policy = policy
        self.frozen = frozen
        self.agent = agent
        self.collecting = collecting.Collecting(**of_collecting)
        self.training = {name: value for name, value in training.items() if value is not None}
        self.frame_stack = frame_stack
        self.max_num_steps = max_num_steps

    def matches(self, agent: str) -> bool:
        """Whether the spec is for the agent of that name, unless an earlier one is."""
        return self._pattern.fullmatch(agent) is not None


def _unread(name: str, policy: str, of_collecting: bool) -> str:
    """Says why nobody reads an option of a policy without an agent, and what does instead."""
    if of_collecting and policy == MAIN:
        return (
            f"AgentSpec.{name} is set for the policy {MAIN!r}, for which it is Collecting.{name} "
            "(Experiment.collecting): bind that instead"
        )
    hint = ": frozen_policy.which says how one acts" if name == "deterministic_action" else ""
    return f"AgentSpec.{name} is set, but nobody reads it without AgentSpec.agent{hint}"


def assign(
    agents: Sequence[str], specs: Sequence[AgentSpec]
) -> dict[str, list[tuple[str, AgentSpec]]]:
    """The agents of each policy, by its name, each with its spec; in the order of `agents`.

    Raises:
      errors.ConfigError: If an agent matches no spec.
    """
    groups: dict[str, list[tuple[str, AgentSpec]]] = {}
    for agent in agents:
        spec = next((spec for spec in specs if spec.matches(agent)), None)
        if spec is None:
            raise errors.ConfigError(
                f"agent {agent!r} matches none of AgentWorld.agents "
                f"({', '.join(repr(spec.agents) for spec in specs)}): add an AgentSpec for it"
            )
        groups.setdefault(spec.policy, []).append((agent, spec))
    return groups
