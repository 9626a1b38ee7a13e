"""Chooses how a policy is run."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tf_agents.policies import py_policy, py_tf_eager_policy, random_tf_policy, tf_policy
from tf_agents.specs import tensor_spec

from actor_learner.inference import graph, lite, protocol, python, traced_policy
from actor_learner.support import errors, seeds

AUTO, LITE, GRAPH = "auto", "lite", "graph"

kind_of = protocol.kind_of

_said: set[str] = set()
_saying = threading.Lock()


def stream_for(
    policy: Any,
    num_lanes: int,
    batched: bool,
    *,
    inference: str = AUTO,
    seed: int | None = None,
    first_lane: int = 0,
) -> protocol.GroupInference:
    """What runs `policy` for a group of `num_lanes` lanes, on the thread of the caller.

    Args:
      policy: A TF policy, a Python policy, or an object with `act(time_step)` and `reset()`.
      num_lanes: Lanes of the group.
      batched: Whether the environment has a batch dimension, which Python policies then see.
      inference: How a TF policy is run: "lite", by TFLite; "graph", by TensorFlow; or "auto", which
        is lite unless there is a GPU or the policy cannot be converted. The log then says why.
      seed: Of what the policy draws at random, if lite; None follows `tf.random.set_seed`.
      first_lane: Number of the group's first lane among all lanes that share the seed. A uniformly
        random policy draws for the whole group: other numbers for each first lane.

    Raises:
      errors.SpecMismatchError: If `policy` is none of these.
      errors.ConfigError: If `inference` is none of these, or "lite" is impossible; says why.
    """
    require_known(inference)
    # TF-Agents scripts wrap their TF policy for PyDriver; compiled by us it runs several times
    # faster and handles many lanes. Subclasses may change `action`, so they are left alone.
    if type(policy) is py_tf_eager_policy.PyTFEagerPolicy:
        policy = policy._policy
    if isinstance(policy, tf_policy.TFPolicy):
        if inference != GRAPH and _is_plain_random(policy):
            action_spec = tensor_spec.to_nest_array_spec(policy.action_spec)
            group_seed = seeds.of(_noise_seed(seed), "random", first_lane)
            return python.RandomInference(action_spec, (), num_lanes, group_seed)
        return _run_tf_policy(policy, num_lanes, inference, seed, first_lane)
    if inference == LITE:
        raise errors.ConfigError(
            f"inference is '{LITE}', but a {type(policy).__name__} is not a TF policy, which alone "
            f"can be converted: use '{AUTO}'"
        )
    if isinstance(policy, py_policy.PyPolicy):
        return python.PyPolicyInference(policy, num_lanes, batched)
    if hasattr(policy, "act") and hasattr(policy, "reset"):
        return policy
    raise errors.SpecMismatchError(
        f"{type(policy).__name__} is not a policy an actor can run: pass a tf_agents TFPolicy, a "
        "PyPolicy, or an object with act(time_step) and reset()"
    )


def require_known(inference: str) -> None:
    """Raises `errors.ConfigError` unless `inference` is "auto", "lite" or "graph"."""
    if inference not in (AUTO, LITE, GRAPH):
        raise errors.ConfigError(
            f"inference must be '{AUTO}', '{LITE}' or '{GRAPH}', got {inference!r}"
        )


def _run_tf_policy(
    policy: tf_policy.TFPolicy, num_lanes: int, inference: str, seed: int | None, first_lane: int
) -> protocol.GroupInference:
    if inference == AUTO and tf.config.get_visible_devices("GPU"):
        inference = GRAPH
    traced = traced_policy.TracedPolicy(policy, num_lanes)
    if inference == GRAPH:
        return graph.GraphInference(policy, num_lanes, traced)
    try:
        stream = lite.LiteInference(
            policy, num_lanes, seed=_noise_seed(seed), first_lane=first_lane, traced=traced
        )
        logging.info("The policy %r is run by TFLite.", policy.name)
        return stream
    except lite.UnconvertibleError as error:
        what = f"The policy {policy.name!r} ({type(policy).__name__})"
        if inference == LITE:
            raise errors.ConfigError(
                f"inference is '{LITE}', but {what[0].lower() + what[1:]} cannot be converted to "
                f"TFLite: {error}. Use '{AUTO}' or '{GRAPH}'"
            ) from error
        _say_once(
            f"{what} is run by TensorFlow, which costs a few hundred microseconds a step, because "
            f"TFLite cannot: {error}."
        )
    return graph.GraphInference(policy, num_lanes, traced)


def _is_plain_random(policy: tf_policy.TFPolicy) -> bool:
    """Whether uniformly random actions are all that a policy gives."""
    return (
        type(policy) is random_tf_policy.RandomTFPolicy
        and not tf.nest.flatten(policy.info_spec)
        and policy.observation_and_action_constraint_splitter is None
        and all(
            isinstance(spec, tensor_spec.BoundedTensorSpec)
            for spec in tf.nest.flatten(policy.action_spec)
        )
    )


def _noise_seed(seed: int | None) -> int:
    """The seed of what a policy draws, apart from whatever else uses `seed`."""
    if seed is not None:
        return seeds.of(seed, "acting")
    of_all, of_operation = tf.compat.v1.get_seed(None)
    if of_all is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return seeds.of(of_all, "acting", of_operation)


def _say_once(message: str) -> None:
    with _saying:
        if message in _said:
            return
        _said.add(message)
    logging.warning("%s", message)
