"""Inference by TFLite: the arithmetic of a policy, and nothing of TensorFlow's executor.

At one lane a call of a small policy takes microseconds, where the same policy as a TensorFlow
function takes a few hundred.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import (
    late_arithmetic,
    lite_constants,
    lite_graph,
    lite_model,
    lite_weights,
    noise,
    protocol,
    traced_policy,
)
from actor_learner.support import nest_access

UnconvertibleError = lite_graph.UnconvertibleError

# A model with weights as constants takes as long to make as it saves in about so many calls of 32
# lanes. The same number for all groups, so that lanes do the same however they are grouped.
_CALLS_BEFORE_CONSTANTS = 16


class LiteInference:
    """Runs a TF policy for a fixed number of lanes in a TFLite interpreter.

    The policy is traced and converted on construction, which takes some tenths of a second, and
    never again. Its variables are inputs of the model: `refresh` hands over their values, and until
    then `act` goes on with the ones before. Weights that stay for 16 calls are made constants of a
    second model, which runs twice as fast, and may round otherwise in the last digit; making it
    takes some fifty microseconds for a small policy. Random numbers are inputs as well, drawn in
    NumPy by a generator for each lane, so that what a lane does depends on the seed and the lane's
    number, not on the lanes it is stepped with. Numbers that a policy draws once per call, for all
    lanes, as TF-Agents' `GaussianPolicy` does, are the same in all lanes here too.

    No call makes an eager tensor, of which TensorFlow loses some bytes each; `refresh` makes one
    per variable that it reads.

    Not thread-safe: one actor, one stream.

    Args:
      policy: The policy.
      num_lanes: Lanes of a step.
      seed: Of the lanes' generators.
      first_lane: Number of the first lane among all lanes that share the seed.
      traced: The same policy for so many lanes, if it has been traced already.

    Raises:
      UnconvertibleError: If the policy cannot be converted; says why.
    """

    kind = "lite"

    def __init__(
        self,
        policy: tf_policy.TFPolicy,
        num_lanes: int,
        *,
        seed: int,
        first_lane: int = 0,
        traced: traced_policy.TracedPolicy | None = None,
    ) -> None:
        self._policy = policy
        self._traced = traced or traced_policy.TracedPolicy(policy, num_lanes)
        lite = lite_graph.rewrite(self._traced)
        draws = [drawn.draw for drawn in lite.drawn]
        draws = noise.with_lanes_axes(draws, num_lanes, functools.partial(self._draws_for, draws))
        self._noise = noise.LaneNoise(draws, num_lanes, seed, first_lane)
        self._build(lite)
        self._initial_state = [state.numpy() for state in self._traced.initial_state_leaves()]
        self._state = self._initial_state
        self._name, self._version, self._epoch = policy.name, -1, 0
        self._current: tuple[int, int] | None = None  # Version and epoch of the weights, if known.
        self._read_weights()

    @property
    def policy(self) -> tf_policy.TFPolicy:
        return self._policy

    @property
    def state(self) -> list[np.ndarray]:
        """Leaves of the policy state, `[lanes, ...]`, for callers that keep it elsewhere."""
        return self._state

    @state.setter
    def state(self, leaves: Sequence[np.ndarray]) -> None:
        self._state = list(leaves)

    def reset(self) -> None:
        self._state = self._initial_state

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Takes over the variables' values if they have changed.

        Variables that are scalars or not trainable, such as the step of a schedule, are read in any
        case.

        Args:
          version: Of the policy: another one than in the last call means other weights. None if it
            is unknown: the weights are read again.
          epoch: Incarnation of the learner whose version it is; another one means other weights.
          certain: Whether weights change with the version only. Else the smallest of them is
            looked at, and all are read if it has changed.
        """
        weights = self._weights
        try:
            if version is None or self._current != (version, epoch):
                self._read_weights()
            elif not certain and weights.have_changed():
                self._read_weights()
            else:
                weights.read_others()
        except lite_weights.ShapeChangedError:
            self._build(lite_graph.rewrite(self._traced))
            self._read_weights()
        self._current = None if version is None else (version, epoch)
        self._version, self._epoch = -1 if version is None else version, epoch

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        if self._calls_left:
            self._calls_left -= 1
            if not self._calls_left:
                self._use_constants()
        set_tensor = self._set_tensor
        for index, leaf in self._leaves:
            set_tensor(index, leaf(time_step))
        if self._drawn:
            position = self._noise.next_step()
            for index, block in self._drawn:
                set_tensor(index, block[position])
        if self._states:
            state = self._state
            for index, number in self._states:
                set_tensor(index, state[number])
        self._invoke()
        action, info, previous = self._answer()
        return protocol.Response(action, info, previous, self._name, self._version, self._epoch)

    def _build(self, lite: lite_graph.LiteGraph) -> None:
        """Converts the graph, and prepares all that a call needs."""
        traced = self._traced
        fetched = _unique(tensor for output in lite.outputs for tensor in _tensors(output))
        placeholders = [
            *lite.inputs.values(),
            *[weight.placeholder for weight in lite.weights],
            *[drawn.placeholder for drawn in lite.drawn],
        ]
        model, interpreter = lite_model.converted(lite.graph, placeholders, fetched)
        self._interpreter = interpreter
        self._use(interpreter)
        index = lite_model.input_indices(interpreter, placeholders)
        num_leaves = len(traced.input_specs)
        leaves = nest_access.getters(self._policy.time_step_spec)
        self._leaves = [
            (index[placeholder.ref()], _as_array(leaves[position], placeholder.dtype))
            for position, placeholder in lite.inputs.items()
            if position < num_leaves and placeholder.ref() in index
        ]
        self._states = [
            (index[placeholder.ref()], position - num_leaves)
            for position, placeholder in lite.inputs.items()
            if position >= num_leaves and placeholder.ref() in index
        ]
        self._drawn = [
            (index[drawn.placeholder.ref()], block)
            for drawn, block in zip(lite.drawn, self._noise.blocks)
            if drawn.placeholder.ref() in index
        ]
        self._weights = lite_weights.Weights(
            self._set_weight,
            [
                lite_weights.WeightInput(
                    weight.variable,
                    index[weight.placeholder.ref()],
                    tuple(weight.placeholder.shape)[:: -1 if weight.transposed else 1],
                    weight.transposed,
                )
                for weight in lite.weights
                if weight.placeholder.ref() in index
            ],
        )
        steady = self._weights.steady_indices
        self._constants = lite_constants.ConstantsModel(model, steady) if steady else None
        self._answer = self._make_answer(lite, fetched)

    def _use(self, interpreter: tf.lite.Interpreter) -> None:
        """Makes an interpreter the one that acts."""
        self._acting, self._invoke = interpreter, interpreter.invoke
        self._set_tensor, self._get_tensor = interpreter.set_tensor, interpreter.get_tensor

    def _use_constants(self) -> None:
        """Makes constants of the weights, which have stayed for a while."""
        interpreter = self._constants.interpreter(self._interpreter)
        for index in self._weights.other_indices:
            interpreter.set_tensor(index, self._interpreter.get_tensor(index))
        self._use(interpreter)

    def _read_weights(self) -> None:
        """Takes over the values of all variables, as inputs again."""
        self._use(self._interpreter)
        self._calls_left = 0
        self._weights.read_all()
        if self._constants is not None:
            self._calls_left = 1 + _CALLS_BEFORE_CONSTANTS

    def _set_weight(self, index: int, value: np.ndarray) -> None:
        self._interpreter.set_tensor(index, value)
        if self._acting is not self._interpreter:
            self._acting.set_tensor(index, value)

    def _make_answer(
        self, lite: lite_graph.LiteGraph, fetched: list[tf.Tensor]
    ) -> Callable[[], tuple[Any, Any, Any]]:
        """A function that gets action, policy info and previous state, and keeps the next state."""
        traced = self._traced

        def get_tensor(index: int) -> np.ndarray:
            return self._get_tensor(index)  # Of the interpreter that acts now.

        details = self._interpreter.get_output_details()
        at = {tensor.ref(): detail["index"] for tensor, detail in zip(fetched, details)}
        readers = [_reader(output, at, get_tensor) for output in lite.outputs]
        only_action = len(readers) == 1 and not tf.nest.is_nested(self._policy.action_spec)
        if only_action:
            info_spec, state = self._policy.info_spec, traced.initial_state
            (read,) = readers
            return lambda: (read(), info_spec, state)
        first_info = traced.num_actions
        first_state = first_info + traced.num_infos
        last_state = first_state + traced.num_states
        pack_action = nest_access.packer(self._policy.action_spec)
        pack_info = nest_access.packer(self._policy.info_spec)
        pack_state = nest_access.packer(traced.initial_state)

        def answer() -> tuple[Any, Any, Any]:
            values = [read() for read in readers]
            self._state = values[first_state:last_state]
            return (
                pack_action(values),
                pack_info(values[first_info:first_state]),
                pack_state(values[last_state:]),
            )

        return answer

    def _draws_for(self, draws: Sequence[noise.Draw], num_lanes: int) -> list[noise.Draw]:
        """What the policy draws in place of `draws` if it acts for so many lanes."""
        unclear = "which lane its random numbers belong to is unclear, and"
        try:
            other = traced_policy.TracedPolicy(self._policy, num_lanes)
            others = [drawn.draw for drawn in lite_graph.rewrite(other).drawn]
        except Exception as error:  # Of the policy's own code: it may be tied to its lanes.
            raise UnconvertibleError(
                f"{unclear} it cannot be traced for {num_lanes} lanes "
                f"({type(error).__name__}: {error})"
            ) from error
        if [_layout(draw) for draw in others] != [_layout(draw) for draw in draws]:
            raise UnconvertibleError(f"{unclear} for {num_lanes} lanes it draws other numbers")
        return others


def _layout(draw: noise.Draw) -> tuple[str, int]:
    return draw.kind, len(draw.shape)


def _tensors(output: Any) -> list[tf.Tensor]:
    if isinstance(output, late_arithmetic.Late):
        return output.tensors()
    return [output] if isinstance(output, tf.Tensor) else []


def _unique(tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    return list({tensor.ref(): tensor for tensor in tensors}.values())


def _as_array(leaf: Callable[[Any], Any], dtype: tf.DType) -> Callable[[Any], np.ndarray]:
    wanted = np.dtype(dtype.as_numpy_dtype)
    return lambda time_step: np.asarray(leaf(time_step), wanted)


def _reader(
    output: Any, at: dict[Any, int], get_tensor: Callable[[int], np.ndarray]
) -> Callable[[], np.ndarray]:
    """A function that returns an output of the last call, in an array of its own."""
    if isinstance(output, tf.Tensor):
        index = at[output.ref()]
        return lambda: get_tensor(index)
    if isinstance(output, late_arithmetic.Late):
        needed = [(tensor.ref(), at[tensor.ref()]) for tensor in output.tensors()]
        return lambda: output.compute({ref: get_tensor(index) for ref, index in needed})
    return output.copy
