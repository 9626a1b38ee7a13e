"""Inference by policies written in Python: TF-Agents PyPolicies, and uniformly random actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.policies import py_policy
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import action_mask
from actor_learner.inference import protocol
from actor_learner.support import errors


class PyPolicyInference:
    """Runs a TF-Agents `PyPolicy` in the layout of its environment.

    Args:
      policy: The policy.
      num_lanes: Lanes of the environment.
      batched: Whether the policy sees a leading `[lanes]` dimension; False for one-lane
        environments without a batch dimension, which is what most PyPolicies are written for.
    """

    kind = "python"

    def __init__(self, policy: py_policy.PyPolicy, num_lanes: int, batched: bool) -> None:
        self._policy = policy
        self._num_lanes = num_lanes
        self._batched = batched
        self._version, self._epoch = -1, 0
        self.reset()

    @property
    def policy(self) -> py_policy.PyPolicy:
        return self._policy

    def reset(self) -> None:
        self._state = self._policy.get_initial_state(self._num_lanes if self._batched else 1)

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Notes the version; what the policy acts with is its own affair."""
        del certain
        self._version, self._epoch = -1 if version is None else version, epoch

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        if not self._batched:
            time_step = tree.map_structure(_without_lane, time_step)
            if time_step.is_first():
                self.reset()
        elif tree.flatten(self._state) and np.any(time_step.is_first()):
            self._reset_lanes(time_step.is_first())
        previous_state = self._state
        step = self._policy.action(time_step, previous_state)
        self._state = step.state
        # Policies over TF graphs answer with tensors.
        to_array = np.asarray if self._batched else _with_lane
        action, info = tree.map_structure(to_array, (step.action, step.info))
        name = type(self._policy).__name__
        return protocol.Response(action, info, previous_state, name, self._version, self._epoch)

    def _reset_lanes(self, first: np.ndarray) -> None:
        initial = self._policy.get_initial_state(self._num_lanes)

        def reset(fresh: Any, kept: Any) -> np.ndarray:
            fresh, kept = np.asarray(fresh), np.asarray(kept)
            return np.where(first.reshape([-1] + [1] * (kept.ndim - 1)), fresh, kept)

        self._state = tree.map_structure(reset, initial, self._state)


class RandomInference:
    """Uniformly random actions within a bounded action spec, for initial collection.

    Args:
      action_spec: Nest of `BoundedArraySpec`.
      info_spec: Nest of specs of the policy info that observers expect; filled with zeros.
      num_lanes: Lanes of the environment.
      seed: Seed of the generator; None draws one.
      mask: Draws legal values of discrete actions; None if all are legal.
    """

    kind = "random"

    def __init__(
        self,
        action_spec: Any,
        info_spec: Any,
        num_lanes: int,
        seed: int | None = None,
        *,
        mask: action_mask.LegalChoices | None = None,
    ) -> None:
        self._mask = mask
        for path, spec in tree.flatten_with_path(action_spec):
            if not isinstance(spec, array_spec.BoundedArraySpec):
                raise errors.SpecMismatchError(
                    f"random actions need bounds, but the action{list(path) or ''} is {spec}: "
                    "set Experiment.initial_random_steps = 0"
                )
        self._action_spec = action_spec
        self._num_lanes = num_lanes
        self._generator = np.random.default_rng(seed)
        self._info = tree.map_structure(
            lambda spec: np.zeros((num_lanes, *spec.shape), tf.as_dtype(spec.dtype).as_numpy_dtype),
            info_spec,
        )

    def reset(self) -> None:
        """Nothing to forget."""

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Nothing to take over: random actions have no version."""

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        if self._mask is None:
            action = tree.map_structure(self._sample, self._action_spec)
            return protocol.Response(action, self._info, policy="random")
        legal = iter(self._mask.choose(time_step.observation, self._generator))
        action = tree.map_structure(
            lambda spec: (
                self._shift(spec, next(legal))
                if np.issubdtype(spec.dtype, np.integer)
                else self._sample(spec)
            ),
            self._action_spec,
        )
        return protocol.Response(action, self._info, policy="random")

    def _shift(self, spec: array_spec.BoundedArraySpec, chosen: np.ndarray) -> np.ndarray:
        """Turns choices counted from 0, `[lanes, components]`, into values of the action."""
        values = chosen.reshape(self._num_lanes, *spec.shape) + spec.minimum
        return values.astype(spec.dtype)

    def _sample(self, spec: array_spec.BoundedArraySpec) -> np.ndarray:
        shape = (self._num_lanes, *spec.shape)
        if np.issubdtype(spec.dtype, np.integer):
            values = self._generator.integers(spec.minimum, spec.maximum, shape, endpoint=True)
        else:
            low = np.maximum(spec.minimum, -1e6)  # Unbounded dimensions have no uniform law.
            high = np.minimum(spec.maximum, 1e6)
            values = self._generator.uniform(low, high, shape)
        return values.astype(spec.dtype)


def _without_lane(array: np.ndarray) -> np.ndarray:
    return array[0, ...]


def _with_lane(value: Any) -> np.ndarray:
    return np.asarray(value)[np.newaxis]
