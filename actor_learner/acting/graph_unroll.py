"""Acting in a tensor environment: policy and environment take many steps in one graph call."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.environments.tensor import environment
from actor_learner.inference import protocol, streams
from actor_learner.support import errors


def fits(env: Any, policy: Any) -> bool:
    """Whether whole unrolls of this policy in this environment can be one graph call."""
    return isinstance(env, environment.TensorEnvironment) and isinstance(policy, tf_policy.TFPolicy)


def where_it_fits(
    env: Any, policy: Any, length: int | None, inference: str, seed: int | None = None
) -> GraphUnroll | None:
    """Unrolls of this policy in this environment; None if they cannot be one graph call.

    Args:
      env: The environment.
      policy: The policy.
      length: Batched steps of an unroll; None if the actor takes no unrolls.
      inference: How the policy is to be run, as of `Actor`.
      seed: As of `GraphUnroll`.

    Raises:
      errors.ConfigError: If that is "lite", which a graph call is not.
    """
    if not (length and fits(env, policy)):
        return None
    streams.require_known(inference)
    if inference == streams.LITE:
        raise errors.ConfigError(
            f"inference is '{streams.LITE}', but in a TensorEnvironment policy and environment "
            "take the steps of a run in one TensorFlow graph call, which TFLite has no part in: "
            f"use '{streams.AUTO}' or '{streams.GRAPH}'"
        )
    return GraphUnroll(env, policy, length, seed)


class GraphUnroll:
    """The lanes that an actor steps; its `inference` chooses the actions, and both know the future.

    The first `inference.act` of an unroll takes `length` steps of all lanes in one graph call.
    That `act` and the following ones hand out its actions, `step` the time steps that these led
    to. An actor that collects `length` batched steps in each run therefore acts on one version of
    the policy, the one that the run began with, and its observers see every step as ever.

    Steps with actions of others, before the first `act` or between two unrolls, such as random
    ones, go to the environment one by one.

    Args:
      env: The environment; it goes on where the last unroll ended.
      policy: A TF policy; variables that it reads, schedules included, take effect in the next
        unroll.
      length: T, batched steps in a graph call.
      seed: Of what the policy draws at random; None follows `tf.random.set_seed`.
    """

    batched = True
    num_waiting = 0

    def __init__(
        self,
        env: environment.TensorEnvironment,
        policy: tf_policy.TFPolicy,
        length: int,
        seed: int | None = None,
    ) -> None:
        self.env = env
        self.policy = policy
        self.length = length
        self._seed = seed
        self.num_lanes = env.batch_size
        self.time_step_spec = env.time_step_spec
        self.action_spec = env.action_spec
        self.get_info = env.get_info
        self.close = env.close
        self.inference = UnrollInference(self)
        self._initial_state = policy.get_initial_state(self.num_lanes)
        self._state = tf.nest.flatten(self._initial_state)
        self.trace_count = 0  # How often the unroll was traced.
        self._unroll: Any = None
        self._checked = False  # Whether all steps of the unroll are known to be finite.
        self._tensors: experience.UnrollTensors | None = None
        self._ends: tuple[Any, Any] = (None, None)  # The latest unroll's first action, last step.
        self._steps: list[_Step] = []  # Of the unroll, those that were not handed out; last first.

    @property
    def steps_left(self) -> int:
        """Steps of the latest unroll that were not handed out."""
        return len(self._steps)

    def begins_with(self, action: Any) -> bool:
        """Whether this action, the very object, was handed out first of the latest unroll."""
        return action is self._ends[0]

    def ends_with(self, time_step: ts.TimeStep) -> bool:
        """Whether this time step, the very object, was handed out last of it."""
        return time_step is self._ends[1]

    def tensors(self) -> experience.UnrollTensors:
        """The latest unroll, whatever was handed out of it.

        Raises:
          errors.ActorLearnerError: If there was none yet.
        """
        if self._tensors is None:
            raise errors.ActorLearnerError("no unroll has been taken yet")
        return self._tensors

    def reset(self) -> ts.TimeStep:
        """Resets all lanes; what is left of an unroll is forgotten."""
        self._steps.clear()
        return self.env.reset()

    def forget_policy_state(self) -> None:
        """Has the policy of all lanes begin with a fresh state."""
        self._state = tf.nest.flatten(self._initial_state)

    def response(self, time_step: ts.TimeStep) -> protocol.Response:
        """The actions of the next step of the unroll; takes another one if it is at its end."""
        if not self._steps:
            self._steps = self._take(time_step)
        return self._steps[-1].response

    def step(self, action: Any) -> ts.TimeStep:
        """The time step that the latest actions of the policy led to."""
        if not self._steps:
            return self.env.step(action)
        time_step = self._steps.pop().next_time_step
        if not self._checked:
            self.env.check(time_step)
        return time_step

    def _take(self, time_step: ts.TimeStep) -> list[_Step]:
        flat = [tf.constant(leaf) for leaf in tf.nest.flatten(time_step)]
        carry = tf.nest.flatten(self.env.carry)
        if self._unroll is None:
            self._structure = (time_step, self.env.carry)
            self._unroll = tf.function(self._build, autograph=False).get_concrete_function(
                *map(_spec, [*flat, *carry, *self._state])
            )
        (carry, time_step, state), rows = self._unroll(*flat, *carry, *self._state)
        self._state = state
        self.env.resume(carry)
        self._tensors = experience.UnrollTensors(*rows[:3], time_step)
        rows = tf.nest.map_structure(lambda leaf: leaf.numpy(), rows)
        last = tf.nest.map_structure(lambda leaf: leaf.numpy(), time_step)
        steps = _steps(*rows, last)
        self._checked = self._is_finite(rows[0], last)
        self._ends = (steps[-1].response.action, last)
        return steps

    def _is_finite(self, time_steps: ts.TimeStep, last: ts.TimeStep) -> bool:
        """Whether no time step that is to be handed out needs a check of its own."""
        led_to = tree.map_structure(
            lambda rows, after: np.concatenate([rows[1:], after[np.newaxis]]), time_steps, last
        )
        return self.env.check_all(led_to)

    def _build(self, *inputs: tf.Tensor) -> tuple[Any, Any]:
        self.trace_count += 1
        if self._seed is not None:
            # Else the graphs of several actors in one process would draw the same numbers.
            tf.compat.v1.set_random_seed(self._seed)
        time_step, carry = tf.nest.pack_sequence_as(
            self._structure, inputs[: len(inputs) - len(self._state)]
        )
        state = list(inputs[len(inputs) - len(self._state) :])
        # One call tells the structure and the types of what is gathered; it is not executed.
        outputs = tf.nest.map_structure(_spec, self._row(time_step, state)[1])
        arrays = [
            tf.TensorArray(spec.dtype, self.length, element_shape=spec.shape)
            for spec in tf.nest.flatten(outputs)
        ]

        def body(count, time_step, carry, state, arrays):
            state, row = self._row(time_step, state)
            arrays = [array.write(count, leaf) for array, leaf in zip(arrays, tf.nest.flatten(row))]
            carry, time_step = self.env.lanes.step(carry, row[1])
            return count + 1, time_step, carry, state, arrays

        _, time_step, carry, state, arrays = tf.while_loop(
            lambda count, *_: count < self.length,
            body,
            (tf.constant(0), time_step, carry, state, arrays),
            maximum_iterations=self.length,
        )
        rows = tf.nest.pack_sequence_as(outputs, [array.stack() for array in arrays])
        return (carry, time_step, state), rows

    def _row(self, time_step: ts.TimeStep, state: list[tf.Tensor]) -> tuple[list, tuple]:
        """The policy's next state, and what is gathered of a step: it, action, info, state."""
        if state:
            # A lane that begins an episode begins with a fresh state, whatever the policy does.
            first = tf.equal(time_step.step_type, ts.StepType.FIRST)
            state = [
                tf.where(tf.reshape(first, [-1] + [1] * (leaf.shape.rank - 1)), initial, leaf)
                for initial, leaf in zip(tf.nest.flatten(self._initial_state), state)
            ]
        packed = tf.nest.pack_sequence_as(self._initial_state, state)
        step = self.policy.action(time_step, packed)
        return tf.nest.flatten(step.state), (time_step, step.action, step.info, packed)


class UnrollInference:
    """The inference stream of a `GraphUnroll`."""

    kind = "unroll"

    def __init__(self, unroll: GraphUnroll) -> None:
        self._unroll = unroll
        self.act = unroll.response
        self.reset = unroll.forget_policy_state

    @property
    def policy(self) -> tf_policy.TFPolicy:
        return self._unroll.policy


class _Step(NamedTuple):
    """One batched step of an unroll: what the policy answered, and where that led."""

    response: protocol.Response
    next_time_step: ts.TimeStep


def _steps(time_steps: ts.TimeStep, action: Any, info: Any, state: Any, last: Any) -> list[_Step]:
    """The steps of an unroll, the last one first, as views that nobody writes to.

    Args:
      time_steps: Those acted on, arrays `[T, lanes, ...]`, like the next three.
      action: What the policy chose.
      info: What else it said.
      state: Its state before.
      last: The time step after the last action, `[lanes, ...]`.
    """
    parts = (_rows(part) for part in (action, info, state))
    responses = [protocol.Response(*row) for row in zip(*parts)]
    next_time_steps = [*_rows(time_steps), last][1:]
    return [_Step(*pair) for pair in zip(responses, next_time_steps)][::-1]


def _rows(nest: Any) -> Iterable[Any]:
    """Nests of the rows of arrays `[T, ...]`; for a nest without any, that nest for ever."""
    leaves = tree.flatten(nest)
    if not leaves:
        return itertools.repeat(nest)
    if isinstance(nest, np.ndarray):
        return list(nest)
    return [tree.unflatten_as(nest, row) for row in zip(*leaves)]


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype)
