"""What all jobs of a run must agree on, kept by the replay server and compared by whoever joins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
import tree
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

import actor_learner
from actor_learner import plan as plan_lib
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.replay.recording import spec_json
from actor_learner.support import errors, reverb_calls

TABLE = "contract"

Contract = dict[str, Any]


def contract_table() -> reverb.Table:
    """The table that holds the contract of a server's run, and nothing else."""
    return reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={"contract": tf.TensorSpec([1, None], tf.uint8)},
    )


def describe(
    run_id: str,
    time_step_spec: Any,
    action_spec: Any,
    algorithm: algorithm_lib.Algorithm,
    plan: plan_lib.Plan,
    variables: Sequence[tf.Variable],
    num_actors: int,
) -> Contract:
    """The contract as this process would write it.

    Args:
      run_id: Of the run.
      time_step_spec: Of the environment.
      action_spec: Of the environment.
      algorithm: What is trained.
      plan: What the experiment comes to.
      variables: What the learner publishes.
      num_actors: How many actors the run has.
    """
    return {
        "run id": run_id,
        "package version": actor_learner.__version__,
        "algorithm": algorithm.name,
        "n_step": algorithm.n_step,
        "gamma": algorithm.gamma,
        "num_actors": num_actors,
        "lanes per actor": plan.num_lanes,
        "stream": type(plan.stream).__name__,
        "tables": {
            table.name: _columns(table.info.signature)
            for table in plan.stream.tables(plan.experience)
        },
        "policy variables": [f"{v.dtype.name} {tuple(v.shape)}" for v in variables],
        **_specs(time_step_spec, action_spec),
    }


def specs_of(contract: Contract) -> tuple[Any, Any]:
    """The environment's specs, for jobs that have no environment: `(time_step, action)`."""
    fields = contract["time step spec"].items()
    return (
        ts.TimeStep(**{field: spec_json.decode(spec) for field, spec in fields}),
        spec_json.decode(contract["action spec"]),
    )


def write(client: reverb.Client, contract: Contract, timeout_seconds: float = 60.0) -> None:
    """Makes `contract` the server's; blocks until the server has it."""
    text = np.frombuffer(json.dumps(contract).encode(), np.uint8)
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append({"contract": text})
        item = {"contract": writer.history["contract"][-1:]}
        writer.create_item(TABLE, priority=1.0, trajectory=item)
        writer.flush(0, int(timeout_seconds * 1000))


def read(client: reverb.Client, timeout_seconds: float = 30.0) -> Contract:
    """The server's contract.

    Raises:
      errors.ReplayError: If the server is none of ours.
      errors.ReplayTimeoutError: If it does not answer, or is not ready yet.
    """
    tables = reverb_calls.fetch_tables(client, timeout_seconds)
    if TABLE not in tables:
        raise errors.ReplayError(
            f"the Reverb server at {client.server_address} is no replay job of ours: it has the "
            f"tables {', '.join(sorted(tables))}, but no contract"
        )
    if not tables[TABLE].current_size:
        raise errors.ReplayTimeoutError(
            f"the replay server at {client.server_address} has not got its contract yet: it has "
            "only just been started"
        )
    sample = reverb_calls.call_with_deadline(
        lambda: next(
            iter(client.sample(TABLE, emit_timesteps=False, unpack_as_table_signature=True))
        ),
        timeout_seconds,
        lambda: reverb_calls.no_answer(client.server_address, timeout_seconds),
    )
    return json.loads(np.asarray(sample.data["contract"])[0].tobytes())


def require_same(ours: Contract, theirs: Contract, who: str, address: str) -> None:
    """Compares two contracts.

    Raises:
      errors.SpecMismatchError: If they differ, naming every difference.
    """
    lines = list(_differences("", ours, theirs))
    if lines:
        raise errors.SpecMismatchError(
            f"{who} does not fit the run at {address}:\n  "
            + "\n  ".join(lines)
            + "\nStart every job of a run with the same gin files, bindings, --num_actors and "
            "package version"
        )


def _specs(time_step_spec: Any, action_spec: Any) -> Contract:
    """The part of a contract that is the environment's."""
    return {
        "time step spec": {
            field: spec_json.encode(spec)
            for field, spec in tensor_spec.from_spec(time_step_spec)._asdict().items()
        },
        "action spec": spec_json.encode(tensor_spec.from_spec(action_spec)),
    }


def _columns(signature: Any) -> dict[str, str]:
    """A table's columns by their paths: a signature comes back from Reverb in any order."""
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
