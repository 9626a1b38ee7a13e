"""`check_environment`: steps an environment and tells every way in which it breaks its contract."""

from __future__ import annotations

from typing import Any

import gymnasium
from tf_agents.environments import py_environment

from actor_learner.environments import (
    agent_world,
    check_gymnasium,
    check_py_environment,
    check_values,
    check_world,
    making,
)
from actor_learner.support import errors


def check_environment(
    env_or_id: Any, *, num_steps: int = 1000, num_envs: int = 2, seed: int = 0
) -> list[str]:
    """Steps an environment with random actions and reports every distinct violation.

    Looked at: values against their spaces (structure, shape, dtype, bounds), NaN and infinity,
    reward and done flags, arrays that are written again after they were returned, resets that are
    not enough, seeds that do not reproduce, exceptions, and spaces that cannot be used here.

    Args:
      env_or_id: A Gymnasium id (environments are made and closed here), a `gymnasium.Env` or a
        TF-Agents PyEnvironment (which is stepped, and left open). For a world with many agents the
        class or function that makes it, or its `"module:name"`.
      num_steps: Steps to take.
      num_envs: For Gymnasium: how many lanes with seeds of their own are compared.
      seed: Of the actions and of the environment.

    Returns:
      One line per violation, empty if there are none. Lines that begin with "note:" are worth a
      look but not against any contract.

    Raises:
      errors.ConfigError: If the environment does not exist (with the nearest ids) or cannot be
        made.
      errors.MissingExtraError: If a package that it needs is not installed.
    """
    findings = check_values.Findings()
    if isinstance(env_or_id, py_environment.PyEnvironment):
        check_py_environment.check(env_or_id, findings, num_steps=num_steps, seed=seed)
    elif isinstance(env_or_id, gymnasium.Env):
        with making.quiet_gymnasium():
            check_gymnasium.check(
                [env_or_id], findings, num_steps=num_steps, num_seeds=num_envs, seed=seed
            )
    elif agent_world.names_world(env_or_id):
        check_world.check(
            agent_world.world_maker(env_or_id), findings, num_steps=num_steps, seed=seed
        )
    elif isinstance(env_or_id, str):
        factory = making.environment_factory(env_or_id)
        envs: list[gymnasium.Env] = []
        try:
            for _ in range(max(1, num_envs)):
                envs.append(factory())
            with making.quiet_gymnasium():
                check_gymnasium.check(
                    envs, findings, num_steps=num_steps, num_seeds=num_envs, seed=seed
                )
        finally:
            for env in envs:
                env.close()
    else:
        raise errors.ConfigError(
            f"cannot check a {type(env_or_id).__name__}: give a Gymnasium id, a gymnasium.Env, a "
            "TF-Agents PyEnvironment or what makes a world with many agents"
        )
    return findings.as_list()


def format_report(env_name: str, violations: list[str]) -> str:
    """Renders what `check_environment` returned for a reader, without a final line break."""
    notes = [line for line in violations if line.startswith("note:")]
    faults = [line for line in violations if not line.startswith("note:")]
    if not faults:
        heading = f"{env_name}: no violations"
    else:
        heading = f"{env_name}: {len(faults)} violation{'s' if len(faults) > 1 else ''}"
    numbered = [f"  {number}. {line}" for number, line in enumerate(faults, 1)]
    return "\n".join([heading, *numbered, *(f"  {note}" for note in notes)])
