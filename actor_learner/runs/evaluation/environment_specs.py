"""Checks that policies can be evaluated in an environment other than that of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import tree
from tf_agents.environments import py_environment
from tf_agents.specs import tensor_spec

from actor_learner.support import errors


def require_same(env: py_environment.PyEnvironment, time_step_spec: Any, action_spec: Any) -> None:
    """Compares the specs of an environment to evaluate in with those of training.

    Args:
      env: The environment to evaluate in.
      time_step_spec: Time step spec of the training environment, for one lane.
      action_spec: Action spec of the training environment.

    Raises:
      errors.SpecMismatchError: If observations, actions or the shape of rewards differ, naming
        every difference.
    """
    found = [
        *_differences("observation", env.observation_spec(), time_step_spec.observation),
        *_differences("action", env.action_spec(), action_spec),
        *_differences("reward", env.reward_spec(), time_step_spec.reward, bounds=False),
    ]
    if found:
        raise errors.SpecMismatchError(
            "policies cannot be evaluated in the evaluation environment, which differs from the "
            "one that they are trained in:\n  "
            + "\n  ".join(found)
            + "\nBoth must have the same observations and actions: see Evaluation.environment"
        )


def _differences(what: str, ours: Any, theirs: Any, bounds: bool = True) -> list[str]:
    ours, theirs = tensor_spec.from_spec(ours), tensor_spec.from_spec(theirs)
    try:
        # TensorFlow wraps dicts and tuples that belong to an agent.
        tree.assert_same_structure(ours, theirs, check_types=False)
    except (TypeError, ValueError):
        return [f"{what}: {ours} instead of {theirs}"]
    found = []
    paths = tree.flatten_with_path(theirs)
    for one, (path, other) in zip(tree.flatten(ours), paths):
        name = "/".join([what, *map(str, path)])
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            found.append(f"{name}: {_shown(one)} instead of {_shown(other)}")
        elif bounds and not _same_bounds(one, other):
            found.append(f"{name}: {_range(one)} instead of {_range(other)}")
    return found


def _same_bounds(one: Any, other: Any) -> bool:
    if not all(isinstance(spec, tensor_spec.BoundedTensorSpec) for spec in (one, other)):
        return True  # Recorded experience may have no bounds.
    return all(
        np.array_equal(np.broadcast_to(a, one.shape), np.broadcast_to(b, one.shape))
        for a, b in ((one.minimum, other.minimum), (one.maximum, other.maximum))
    )


def _shown(spec: Any) -> str:
    return f"{spec.dtype.name} of shape {tuple(spec.shape)}"


def _range(spec: Any) -> str:
    return f"values from {np.min(spec.minimum)} to {np.max(spec.maximum)}"
