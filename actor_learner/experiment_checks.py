"""What can be wrong with an experiment's arguments, before anything is built from them."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import tree

from actor_learner import argument_checks, collecting, evaluation_settings, run_settings
from actor_learner.replay.streams import recorded_replay, sample_stream
from actor_learner.support import errors

_INSTANCES = {
    "replay": sample_stream.SampleStream,
    "evaluation": evaluation_settings.Evaluation,
    "checkpoints": run_settings.Checkpoints,
    "reporting": run_settings.Reporting,
    "staleness": run_settings.Staleness,
    "devices": run_settings.Devices,
    "collecting": collecting.Collecting,
}
_AT_LEAST = {
    "environment_steps": 1,
    "train_steps": 1,
    "initial_random_steps": 0,
    "learn_from": 0,
    "collect_steps": 1,
    "batch_size": 1,
    "ring_size": 1,
}


def is_offline(replay: Any) -> bool:
    """Whether a sample stream has recorded experience alone."""
    return isinstance(replay, recorded_replay.PrefilledStream) and not replay.collects


def check(arguments: Mapping[str, Any]) -> None:
    """Checks the arguments of `Experiment`, by name.

    Raises:
      errors.ConfigError: For the first that cannot be used, or does not go with another.
    """
    given = types.SimpleNamespace(**arguments)
    _check_forms(given)
    _check_numbers(given)
    if given.overlap and given.deterministic:
        raise errors.ConfigError(
            "Experiment.overlap and Experiment.deterministic exclude each other: what two "
            "threads do at the same time is never twice the same"
        )
    if given.agent is None:
        raise errors.ConfigError("Experiment.agent is not set: bind it, e.g. to @dqn")
    _check_offline(given)


def _check_forms(given: types.SimpleNamespace) -> None:
    """Refuses what was given in another form than it takes, such as a class for an instance."""
    argument_checks.require_maker(
        "Experiment.environment",
        given.environment,
        "environments",
        "functools.partial(GymnasiumEnvironment, 'CartPole-v1', num_envs=16)",
    )
    argument_checks.require_maker(
        "Experiment.agent", given.agent, "an agent", "functools.partial(dqn, learning_rate=1e-3)"
    )
    for name, kind in _INSTANCES.items():
        argument_checks.require_instance(f"Experiment.{name}", getattr(given, name), kind)


def _check_numbers(given: types.SimpleNamespace) -> None:
    for name, least in _AT_LEAST.items():
        value = getattr(given, name)
        argument_checks.require_number(f"Experiment.{name}", value)
        if value is not None and value < least:
            raise errors.ConfigError(f"Experiment.{name} must be at least {least}, got {value}")
    for name in ("updates_per_step", "sample_timeout_seconds"):
        value = getattr(given, name)
        argument_checks.require_number(f"Experiment.{name}", value)
        if value is not None and value <= 0:
            raise errors.ConfigError(f"Experiment.{name} must be above 0, got {value}")
    for name in ("initial_random_steps", "learn_from"):
        value = getattr(given, name)
        if value is not None and value >= given.environment_steps:
            raise errors.ConfigError(
                f"Experiment.{name} ({value}) leaves nothing of the {given.environment_steps} "
                "environment_steps to learn from"
            )


def _check_offline(given: types.SimpleNamespace) -> None:
    offline = is_offline(given.replay)
    if given.environment is None and not offline:
        raise errors.ConfigError(
            "Experiment.environment is not set: bind it, e.g. to @GymnasiumEnvironment. Only "
            "an experiment on recorded experience (Experiment.replay = @RecordedReplay()) can "
            "do without"
        )
    if offline and given.train_steps is None:
        raise errors.ConfigError(
            "Experiment.train_steps is not set: with recorded experience alone there are no "
            "environment steps that would end training"
        )
    if given.train_steps is not None and not offline:
        raise errors.ConfigError(
            "Experiment.train_steps is for recorded experience alone; a run that collects ends "
            "after Experiment.environment_steps"
        )
    collecting = {
        "initial_random_steps": given.initial_random_steps,
        "learn_from": given.learn_from,
        "updates_per_step": given.updates_per_step,
        "collect_steps": given.collect_steps,
        "record": given.record or None,
        "overlap": given.overlap or None,
        "deterministic": given.deterministic or None,
    }
    without_effect = [name for name, value in collecting.items() if value is not None]
    if offline and without_effect:
        raise errors.ConfigError(
            f"Experiment.{', '.join(without_effect)}: for runs that collect, but this one "
            "learns from recorded experience alone: leave the binding out. How long it trains "
            "is Experiment.train_steps"
        )


def check_collecting(given: collecting.Collecting, offline: bool) -> None:
    """Refuses settings of how to collect, where nobody does and nothing else would say so.

    Raises:
      errors.ConfigError: Naming the first of them.
    """
    for name in ("deterministic_action", "send_concise_info"):
        if offline and getattr(given, name):
            raise errors.ConfigError(
                f"Collecting.{name} is set: for runs that collect, but this one learns from "
                "recorded experience alone: leave the binding out"
            )


def refuse_memory(policy: Any, agent: str) -> None:
    """Refuses policies with a state of their own, where agents take turns.

    Raises:
      errors.ConfigError: If the policy has one.
    """
    if tree.flatten(policy.policy_state_spec):
        raise errors.ConfigError(
            f"{agent} has a memory, which it would write to while its agents wait for their turns: "
            "use an agent without, or a world in which all agents act at once"
        )
