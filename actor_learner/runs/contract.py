"""The contract that all jobs of a run must agree on; the replay job tells it to those that join."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tree
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

import actor_learner
from actor_learner import plan as plan_lib
from actor_learner import spec_json
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.replay.streams import apart
from actor_learner.support import errors

Contract = dict[str, Any]


def describe(
    run_id: str,
    time_step_spec: Any,
    action_spec: Any,
    algorithm: algorithm_lib.Algorithm,
    plan: plan_lib.Plan,
    variables: Sequence[tf.Variable],
) -> Contract:
    """Returns the contract as this process would write it.

    Args:
      run_id: Identifier of the run.
      time_step_spec: Time step spec of the environment.
      action_spec: Action spec of the environment.
      algorithm: The algorithm that is trained.
      plan: The plan of the experiment.
      variables: The variables that the learner publishes.
    """
    return {
        "run id": run_id,
        "package version": actor_learner.__version__,
        "algorithm": algorithm.name,
        "n_step": algorithm.n_step,
        "gamma": algorithm.gamma,
        "lanes per actor": plan.num_lanes,
        "groups per actor": plan.num_groups,
        "lanes apart": isinstance(plan.stream, apart.Apart) and plan.stream.takes_turns,
        "stream": type(plan.stream).__name__,
        "tables": {table.name: _columns(table.info.signature) for table in plan.tables()},
        "policy variables": [f"{v.dtype.name} {tuple(v.shape)}" for v in variables],
        **_specs(time_step_spec, action_spec),
    }


def specs_of(contract: Contract) -> tuple[Any, Any]:
    """Returns the environment's specs, `(time_step, action)`, for jobs without an environment."""
    fields = contract["time step spec"].items()
    return (
        ts.TimeStep(**{field: spec_json.decode(spec) for field, spec in fields}),
        spec_json.decode(contract["action spec"]),
    )


def require_same(ours: Contract, theirs: Contract, who: str) -> None:
    """Compares two contracts.

    Raises:
      errors.SpecMismatchError: If they differ, naming every difference.
    """
    lines = list(_differences("", ours, theirs))
    if lines:
        raise errors.SpecMismatchError(
            f"{who} does not fit the run:\n  "
            + "\n  ".join(lines)
            + "\nStart every job of a run with the same gin files, bindings and package version"
        )


def _specs(time_step_spec: Any, action_spec: Any) -> Contract:
    """Returns the environment's part of a contract."""
    return {
        "time step spec": {
            field: spec_json.encode(spec)
            for field, spec in tensor_spec.from_spec(time_step_spec)._asdict().items()
        },
        "action spec": spec_json.encode(tensor_spec.from_spec(action_spec)),
    }


def _columns(signature: Any) -> dict[str, str]:
    """Returns a table's columns by path, since Reverb returns a signature in any order."""
    return {"/".join(map(str, path)): str(spec) for path, spec in tree.flatten_with_path(signature)}


def _differences(path: str, ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            inner = f"{path}/{key}" if path else key
            if key not in ours:
                yield f"{inner}: missing here, {_short(theirs[key])} in the run"
            elif key not in theirs:
                yield f"{inner}: {_short(ours[key])} here, missing in the run"
            else:
                yield from _differences(inner, ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs)):
            yield from _differences(f"{path}[{number}]", one, other)
    elif ours != theirs:
        yield f"{path}: {_short(ours)} here, {_short(theirs)} in the run"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."
