"""Chooses the inference stream that fits a policy."""

from typing import Any

from tf_agents.policies import py_policy, py_tf_eager_policy, tf_policy

from actor_learner.inference import inline, protocol, python
from actor_learner.support import errors


def stream_for(policy: Any, num_lanes: int, batched: bool) -> protocol.InferenceStream:
    """The stream that runs `policy` for `num_lanes` lanes.

    Args:
      policy: A TF policy, a Python policy, or an inference stream.
      num_lanes: Lanes of the environment.
      batched: Whether the environment has a batch dimension, which Python policies then see.

    Raises:
      errors.SpecMismatchError: If `policy` is none of these.
    """
    # TF-Agents scripts wrap their TF policy for PyDriver; compiled by us it runs several times
    # faster and handles many lanes. Subclasses may change `action`, so they are left alone.
    if type(policy) is py_tf_eager_policy.PyTFEagerPolicy:
        policy = policy._policy
    if isinstance(policy, tf_policy.TFPolicy):
        return inline.InlineInference(policy, num_lanes)
    if isinstance(policy, py_policy.PyPolicy):
        return python.PyPolicyInference(policy, num_lanes, batched)
    if hasattr(policy, "act") and hasattr(policy, "reset"):
        return policy
    raise errors.SpecMismatchError(
        f"{type(policy).__name__} is not a policy an actor can run: pass a tf_agents TFPolicy, a "
        "PyPolicy, or an object with act(time_step) and reset()"
    )
