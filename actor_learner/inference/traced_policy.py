"""A policy traced once, for a fixed number of lanes, with one positional argument per tensor."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts


class TracedPolicy:
    """One graph of a policy's step, its inputs and outputs flat.

    Inputs are the leaves of the time step, `[lanes, ...]`, then those of the policy state. Outputs
    are the leaves of the action, of the policy info, of the next state, and of the state that the
    step was computed from: where a lane begins an episode, the initial one.

    Args:
      policy: The policy.
      num_lanes: Lanes of a step.

    Attributes:
      policy: As given.
      num_lanes: As given.
      function: The concrete function.
      input_specs: Of the time step's leaves.
      initial_state: Of all lanes, a nest of tensors.
      read_inputs: Positions of the time step's leaves whose values the policy uses, usually not
        reward and discount.
      num_actions: Leaves of an action.
      num_infos: Leaves of the policy info.
      num_states: Leaves of the policy state.
      trace_count: How often the policy was traced: once, or twice if tracing it first made
        variables, as TF-Agents' `OUNoisePolicy` does.
    """

    def __init__(self, policy: tf_policy.TFPolicy, num_lanes: int) -> None:
        self.policy = policy
        self.num_lanes = num_lanes
        self.trace_count = 0
        self.input_specs = [
            tf.TensorSpec([num_lanes] + spec.shape.as_list(), spec.dtype)
            for spec in tf.nest.flatten(policy.time_step_spec)
        ]
        self.initial_state = policy.get_initial_state(num_lanes)
        self._flat_initial_state = tf.nest.flatten(self.initial_state)
        self.num_actions = len(tf.nest.flatten(policy.action_spec))
        self.num_infos = len(tf.nest.flatten(policy.info_spec))
        self.num_states = len(self._flat_initial_state)
        # One positional argument per tensor: a concrete function called in another layout than it
        # was traced with spends milliseconds on the error message it then discards.
        self.function = tf.function(self._step, autograph=False).get_concrete_function(
            *self.input_specs,
            *[tf.TensorSpec(state.shape, state.dtype) for state in self._flat_initial_state],
        )
        used = _inputs_read(self.function)
        self.read_inputs = [i for i in range(len(self.input_specs)) if used[i]]

    def initial_state_leaves(self) -> list[tf.Tensor]:
        """Leaves of the state that all lanes begin with."""
        return list(self._flat_initial_state)

    def _step(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        self.trace_count += 1
        flat_time_step = list(inputs[: len(self.input_specs)])
        flat_state = list(inputs[len(self.input_specs) :])
        time_step = tf.nest.pack_sequence_as(self.policy.time_step_spec, flat_time_step)
        if flat_state:
            # A lane that begins an episode begins with a fresh state, whatever the policy does.
            first = tf.equal(time_step.step_type, ts.StepType.FIRST)
            flat_state = [
                tf.where(tf.reshape(first, [-1] + [1] * (state.shape.rank - 1)), initial, state)
                for initial, state in zip(self._flat_initial_state, flat_state)
            ]
        state = tf.nest.pack_sequence_as(self.initial_state, flat_state)
        policy_step = self.policy.action(time_step, state)
        return [
            *tf.nest.flatten(policy_step.action),
            *tf.nest.flatten(policy_step.info),
            *tf.nest.flatten(policy_step.state),
            *flat_state,
        ]


# These ops look at the shape of their input, which a stand-in shares, not at its values.
_SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})


def _inputs_read(function: Any) -> list[bool]:
    """Which inputs of a concrete function its outputs or side effects take values from.

    Control edges carry no values: TF-Agents orders its ops after *all* inputs by such edges.
    """
    graph = function.graph
    pending = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    values_read = {tensor.op for tensor in graph.outputs}
    seen = set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        pending.extend(op.control_inputs)
        pending.extend(tensor.op for tensor in op.inputs)
        if op.type not in _SHAPE_OPS:
            values_read.update(tensor.op for tensor in op.inputs)
    return [tensor.op in values_read for tensor in graph.inputs]
