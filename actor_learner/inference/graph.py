"""Inference by TensorFlow: one compiled policy call per batched step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tree
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import protocol, traced_policy
from actor_learner.support import nest_access


class GraphInference:
    """Runs a TF policy for a fixed number of lanes as one concrete function.

    The graph is traced on construction, and never again. Inputs that the policy never reads
    (usually reward and discount) are not converted on each step: a constant made once stands in for
    them. Variables the policy reads, exploration schedules included, take effect without retracing.
    Noise that a policy draws once per call, as TF-Agents' `OUNoisePolicy` does, is the same in all
    lanes. Noise follows TensorFlow's own seeds (`tf.random.set_seed`).

    Not thread-safe: one actor, one stream.

    Args:
      policy: The policy.
      num_lanes: Lanes of a step.
      traced: The same policy for so many lanes, if it has been traced already.
    """

    kind = "graph"

    def __init__(
        self,
        policy: tf_policy.TFPolicy,
        num_lanes: int,
        traced: traced_policy.TracedPolicy | None = None,
    ) -> None:
        self._traced = traced or traced_policy.TracedPolicy(policy, num_lanes)
        self._function = self._traced.function
        self._specs = self._traced.input_specs
        self._flat_state = self._traced.initial_state_leaves()
        self._placeholders = [tf.zeros(spec.shape, spec.dtype) for spec in self._specs]
        self._pack_action = nest_access.packer(policy.action_spec)
        self._pack_info = nest_access.packer(policy.info_spec)
        self._pack_state = nest_access.packer(self._traced.initial_state)
        self._version, self._epoch = -1, 0
        self._name = policy.name

    @property
    def policy(self) -> tf_policy.TFPolicy:
        return self._traced.policy

    @property
    def trace_count(self) -> int:
        """How often the policy was traced; `act` never adds to it."""
        return self._traced.trace_count

    @property
    def state(self) -> list[np.ndarray]:
        """Leaves of the policy state, `[lanes, ...]`, for callers that keep it elsewhere."""
        return [leaf.numpy() for leaf in self._flat_state]

    @state.setter
    def state(self, leaves: Sequence[np.ndarray]) -> None:
        self._flat_state = [tf.constant(leaf) for leaf in leaves]

    def reset(self) -> None:
        self._flat_state = self._traced.initial_state_leaves()

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Notes the version; the graph reads the variables themselves in every call."""
        del certain
        self._version, self._epoch = -1 if version is None else version, epoch

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        traced = self._traced
        leaves = tree.flatten(time_step)
        inputs = list(self._placeholders)
        for i in traced.read_inputs:
            inputs[i] = tf.constant(leaves[i], self._specs[i].dtype)
        outputs = self._function(*inputs, *self._flat_state)
        num_actions, num_infos = traced.num_actions, traced.num_infos
        arrays = [output.numpy() for output in outputs[: num_actions + num_infos]]
        states = outputs[num_actions + num_infos :]
        self._flat_state = list(states[: traced.num_states])
        return protocol.Response(
            action=self._pack_action(arrays),
            policy_info=self._pack_info(arrays[num_actions:]),
            previous_state=self._pack_state(states[traced.num_states :]),
            policy=self._name,
            version=self._version,
            epoch=self._epoch,
        )
