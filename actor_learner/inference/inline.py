"""Inference in the actor's own process: one compiled policy call per batched step."""

from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import protocol


class InlineInference:
    """Runs a TF policy for a fixed number of lanes as one concrete function.

    The graph is traced on construction, and never again. Inputs that the policy never reads
    (usually reward and discount) are not converted on each step: a constant made once stands in for
    them. Variables the policy reads, exploration schedules included, take effect without retracing.
    Noise that a policy draws once per call, as TF-Agents' `OUNoisePolicy` does, is the same in all
    lanes.

    Not thread-safe: one actor, one stream.
    """

    def __init__(self, policy: tf_policy.TFPolicy, num_lanes: int) -> None:
        self._policy = policy
        self._num_lanes = num_lanes
        self._trace_count = 0

        time_step_spec = policy.time_step_spec
        self._flat_specs = [
            tf.TensorSpec([num_lanes] + spec.shape.as_list(), spec.dtype)
            for spec in tf.nest.flatten(time_step_spec)
        ]
        self._initial_state = policy.get_initial_state(num_lanes)
        self._flat_initial_state = tf.nest.flatten(self._initial_state)
        self._flat_state = list(self._flat_initial_state)
        self._num_actions = len(tf.nest.flatten(policy.action_spec))
        self._num_infos = len(tf.nest.flatten(policy.info_spec))

        # One positional argument per tensor: a concrete function called in another layout than it
        # was traced with spends milliseconds on the error message it then discards.
        self._function = tf.function(self._step, autograph=False).get_concrete_function(
            *self._flat_specs, *[_spec_of(state) for state in self._flat_initial_state]
        )
        self._placeholders = [tf.zeros(spec.shape, spec.dtype) for spec in self._flat_specs]
        used = _inputs_read(self._function)
        self._read_leaves = [i for i in range(len(self._flat_specs)) if used[i]]

    @property
    def policy(self) -> tf_policy.TFPolicy:
        return self._policy

    @property
    def trace_count(self) -> int:
        """How often the policy was traced; `act` never adds to it.

        Once, or twice if tracing it first made variables, as TF-Agents' `OUNoisePolicy` does.
        """
        return self._trace_count

    def reset(self) -> None:
        self._flat_state = list(self._flat_initial_state)

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        leaves = tree.flatten(time_step)
        inputs = list(self._placeholders)
        for i in self._read_leaves:
            inputs[i] = tf.constant(leaves[i], self._flat_specs[i].dtype)
        outputs = self._function(*inputs, *self._flat_state)
        num_actions, num_infos = self._num_actions, self._num_infos
        arrays = [output.numpy() for output in outputs[: num_actions + num_infos]]
        num_states = len(self._flat_state)
        states = outputs[num_actions + num_infos :]
        self._flat_state = list(states[:num_states])
        return protocol.Response(
            action=_pack(self._policy.action_spec, arrays[:num_actions]),
            policy_info=_pack(self._policy.info_spec, arrays[num_actions:]),
            previous_state=_pack(self._initial_state, states[num_states:]),
        )

    def _step(self, *inputs: tf.Tensor) -> list:
        self._trace_count += 1
        flat_time_step = list(inputs[: len(self._flat_specs)])
        flat_state = list(inputs[len(self._flat_specs) :])
        time_step = tf.nest.pack_sequence_as(self._policy.time_step_spec, flat_time_step)
        if flat_state:
            # A lane that begins an episode begins with a fresh state, whatever the policy does.
            first = tf.equal(time_step.step_type, ts.StepType.FIRST)
            flat_state = [
                tf.where(tf.reshape(first, [-1] + [1] * (state.shape.rank - 1)), initial, state)
                for initial, state in zip(self._flat_initial_state, flat_state)
            ]
        state = tf.nest.pack_sequence_as(self._initial_state, flat_state)
        policy_step = self._policy.action(time_step, state)
        return [
            *tf.nest.flatten(policy_step.action),
            *tf.nest.flatten(policy_step.info),
            *tf.nest.flatten(policy_step.state),
            *flat_state,
        ]


def _spec_of(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _pack(structure: Any, leaves: list) -> Any:
    """Packs `leaves` like `structure`; the common cases, one leaf or none, cost nothing."""
    if isinstance(structure, (tf.TypeSpec, tf.Tensor, np.ndarray)):
        return leaves[0]
    if not leaves:
        return structure
    return tf.nest.pack_sequence_as(structure, leaves)


# These ops look at the shape of their input, which the stand-in shares, not at its values.
_SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})


def _inputs_read(function: Any) -> list:
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
