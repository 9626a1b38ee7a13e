"""Computes the actions of a policy for rows of any clients: what a policy job serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.policies import tf_policy

from actor_learner import argument_checks
from actor_learner.inference import groups, server, streams
from actor_learner.messaging import messages
from actor_learner.support import configurable, errors, nest_access, seeds

LANE_VALUES = "lane_values"
"""The array of a request that holds what tells one lane from another, if anything does."""


@configurable.register
class PolicyServer:
    """Settings of the policy jobs of a run.

    Args:
      max_batch: Lanes of a batch at most; a group of an actor must not have more.
      max_delay_seconds: How long a request may wait for others. 0 takes what has arrived while the
        batch before was computed, which is the least latency.
      inference: How the policy is run: "auto", "lite" or "graph", as of `Actor`.
    """

    def __init__(
        self,
        max_batch: int = 256,
        max_delay_seconds: float = 0.0,
        inference: str = streams.AUTO,
    ) -> None:
        argument_checks.require_number("PolicyServer.max_batch", max_batch)
        argument_checks.require_number("PolicyServer.max_delay_seconds", max_delay_seconds)
        if max_batch < 1 or max_delay_seconds < 0:
            raise errors.ConfigError(
                f"PolicyServer.max_batch must be at least 1, got {max_batch}, and "
                f"PolicyServer.max_delay_seconds 0 or more, got {max_delay_seconds}"
            )
        streams.require_known(inference)
        self.max_batch = int(max_batch)
        self.max_delay_seconds = max_delay_seconds
        self.inference = inference


class Layout(NamedTuple):
    """Names and specs of the arrays by which a policy is asked and answers.

    Attributes:
      time_step: Of the leaves of a time step, in `tree`'s order.
      action: Of the leaves of an action, likewise; so are the others.
      info: Of the policy info.
      state: Of the policy state.
      lane_values: Of what tells one lane from another; empty if nothing does.
    """

    time_step: dict[str, messages.ArraySpec]
    action: dict[str, messages.ArraySpec]
    info: dict[str, messages.ArraySpec]
    state: dict[str, messages.ArraySpec]
    lane_values: dict[str, messages.ArraySpec]

    @classmethod
    def of(cls, policy: tf_policy.TFPolicy) -> Layout:
        """Both ends compute it from the same policy.

        Raises:
          errors.SpecMismatchError: If it is not a TF policy, or has arrays that cannot be sent.
        """
        if not isinstance(policy, tf_policy.TFPolicy):
            raise errors.SpecMismatchError(
                f"a {type(policy).__name__} cannot be run in a policy job, which runs TF policies: "
                "use Actor.inference_stream = 'inline'"
            )
        values = {LANE_VALUES: messages.ArraySpec(np.float32, [None])}
        return cls(
            _specs("step", policy.time_step_spec),
            _specs("action", policy.action_spec),
            _specs("info", policy.info_spec),
            _specs("state", policy.policy_state_spec),
            values if groups.lanes_differ(policy) else {},
        )


class _Model(NamedTuple):
    """The policy, compiled for a number of rows."""

    policy: tf_policy.TFPolicy
    stream: Any


class PolicyService:
    """Runs a TF policy for batches of up to `max_batch` rows.

    A compiled policy is for a fixed number of rows: there is one for each power of two, made when
    it is needed first, which takes some tenths of a second; rows that fill up a batch are zeros.

    Args:
      policy: The policy; the variables it reads are the caller's to update, followed by `refresh`.
      max_batch: Rows of a batch at most.
      inference: How it is run, as of `Actor`.
      seed: Of what the policy draws at random.
    """

    def __init__(
        self,
        policy: tf_policy.TFPolicy,
        max_batch: int,
        *,
        inference: str = streams.AUTO,
        seed: int | None = None,
    ) -> None:
        streams.require_known(inference)
        self.layout = Layout.of(policy)
        self.request_spec = {**self.layout.time_step, **self.layout.lane_values}
        self.state_spec = self.layout.state
        self._policy = policy
        self._max_batch = max_batch
        self._inference = inference
        self._seed = seed
        self._models: dict[int, _Model] = {}
        self._version, self._epoch = -1, 0
        self._pack = nest_access.packer(policy.time_step_spec)

    @property
    def version(self) -> int:
        return self._version

    def refresh(self, version: int, epoch: int) -> None:
        """Acts with the policy's variables as they are now; not while a batch is computed."""
        self._version, self._epoch = version, epoch
        for model in self._models.values():
            model.stream.refresh(version, epoch, certain=True)

    def initial_state(self, num_rows: int) -> dict[str, np.ndarray]:
        leaves = tf.nest.flatten(self._policy.get_initial_state(num_rows))
        return {name: leaf.numpy() for name, leaf in zip(self.state_spec, leaves)}

    def answer(
        self, arrays: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]
    ) -> server.Answer:
        rows = len(next(iter(arrays.values())))
        size = min(self._max_batch, 1 << (rows - 1).bit_length())
        model = self._model(size)
        if self.layout.lane_values:
            model.policy.lane_values = _filled(arrays[LANE_VALUES], size)
            model.stream.refresh(self._version, self._epoch, certain=True)
        if self.state_spec:
            model.stream.state = [_filled(state[name], size) for name in self.state_spec]
        leaves = [_filled(arrays[name], size) for name in self.layout.time_step]
        response = model.stream.act(self._pack(leaves))
        outputs = dict(zip(self.layout.action, tree.flatten(response.action)))
        outputs.update(zip(self.layout.info, tree.flatten(response.policy_info)))
        body = {"policy": response.policy, "version": self._version, "epoch": self._epoch}
        after = dict(zip(self.state_spec, model.stream.state)) if self.state_spec else {}
        return server.Answer(outputs, after, body)

    def _model(self, size: int) -> _Model:
        if size not in self._models:
            policy = self._policy
            if self.layout.lane_values:
                policy = policy.for_lanes(size)
            # Numbers of its own for each: batches of two sizes must not explore alike.
            seed = None if self._seed is None else seeds.of(self._seed, "rows", size)
            stream = streams.stream_for(
                policy, size, batched=True, inference=self._inference, seed=seed
            )
            stream.refresh(self._version, self._epoch)
            self._models[size] = _Model(policy, stream)
        return self._models[size]


def _specs(name: str, nest: Any) -> dict[str, messages.ArraySpec]:
    return {
        f"{name}/{number}": messages.ArraySpec(
            tf.as_dtype(spec.dtype).as_numpy_dtype, [None, *spec.shape]
        )
        for number, spec in enumerate(tf.nest.flatten(nest))
    }


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    """The array with rows of zeros behind it, up to a number of rows."""
    if len(array) == size:
        return array
    filled = np.zeros((size, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    return filled
