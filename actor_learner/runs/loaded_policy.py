"""A trained policy that answers plain observations, for notebooks, demos and serving."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.policies import py_tf_eager_policy
from tf_agents.trajectories import time_step as ts

from actor_learner import run_directory
from actor_learner.environments import nests
from actor_learner.runs import rated_policy
from actor_learner.support import errors

BEST, LAST, COLLECT = "best", "last", "collect"

_EXPORTS = {LAST: "greedy_policy", COLLECT: "collect_policy"}


def load_policy(run: str | os.PathLike, which: str = BEST) -> LoadedPolicy:
    """Loads a policy of a run, to act with.

    Args:
      run: A run directory, or a directory with an exported policy (a SavedModel).
      which: `best` is the policy that evaluations chose, or the last one if there were none.
        `last` is the one that training ended with. `collect` is the last one as it explores in
        training. Ignored for an exported policy.

    Raises:
      errors.ConfigError: If there is no such policy.
    """
    path = pathlib.Path(run)
    if (path / "saved_model.pb").exists():
        return LoadedPolicy(path)
    run_dir = run_directory.RunDirectory.existing(str(run))
    if which == BEST:
        found = rated_policy.find(run_dir).path
        if found is None:
            raise errors.ConfigError(
                f"the best policy of {run_dir} is in its parameter store only, as bare arrays: "
                "resume the run, which exports it"
            )
        return LoadedPolicy(found)
    if which not in _EXPORTS:
        raise errors.ConfigError(
            f"which={which!r} is not a policy of a run: {BEST!r}, {LAST!r} or {COLLECT!r}"
        )
    found = run_dir.policies / _EXPORTS[which]
    if not (found / "saved_model.pb").exists():
        raise errors.ConfigError(
            f"{run_dir} has no {which} policy yet: {found}, which the end of training writes, does "
            "not exist"
        )
    return LoadedPolicy(found)


class LoadedPolicy:
    """Answers observations with actions; made by `load_policy`.

    ```python
    policy = actor_learner.load_policy("runs/x")
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset()
    policy.reset()                                  # for policies with memory
    done = False
    while not done:
        action = policy.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
    ```

    It includes all that belongs to the policy: it normalises observations and scales actions as in
    training. It does not include what belongs to the environment: use the wrappers that it was
    trained with. Discrete actions count from 0. Only one thread at a time may use it.

    Attributes:
      observation_spec: Nest of array specs of one observation.
      action_spec: Nest of array specs of one action.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._path = os.fspath(path)
        self._policy = py_tf_eager_policy.SavedModelPyTFEagerPolicy(
            self._path, load_specs_from_pbtxt=True, batch_time_steps=False
        )
        self.observation_spec = self._policy.time_step_spec.observation
        self.action_spec = self._policy.action_spec
        self._is_stateful = bool(tf.nest.flatten(self._policy.policy_state_spec))
        self._flatten = nests.compile_map(self.observation_spec, lambda spec: np.asarray)
        self._specs = tf.nest.flatten(self.observation_spec)
        self.reset()

    def __repr__(self) -> str:
        return f"LoadedPolicy({self._path!r})"

    def reset(self) -> None:
        """Begins new episodes: forgets what a policy with memory remembers."""
        self._state: Any = None
        self._lanes: int | None = None

    def act(self, observation: Any, *, is_first: Any = None) -> Any:
        """Chooses the action for one observation, or the actions for a batch of them.

        Args:
          observation: With the shapes of `observation_spec`, or with one more dimension in front.
            Floats may be of any width.
          is_first: `[batch]` of bools: which of a batch begin an episode, so that a policy with
            memory forgets the one before. None means all in the first call after `reset`, and none
            later. Policies without memory need neither this nor `reset`.

        Returns:
          NumPy arrays, with a batch dimension if `observation` has one.

        Raises:
          errors.SpecMismatchError: If the observation does not fit, or the size of the batch has
            changed though the policy remembers each of its lanes.
        """
        leaves, lanes, is_batched = self._checked(observation)
        if self._lanes is not None and lanes != self._lanes and self._is_stateful:
            raise errors.SpecMismatchError(
                f"a batch of {lanes} observations follows one of {self._lanes}, but this policy "
                "remembers each of them: call reset() first"
            )
        begins = np.full([lanes], self._lanes is None)
        if is_first is not None:
            begins = np.broadcast_to(np.asarray(is_first, bool), [lanes])
        step = ts.TimeStep(
            step_type=np.where(begins, ts.StepType.FIRST, ts.StepType.MID).astype(np.int32),
            reward=np.zeros([lanes], np.float32),
            discount=np.ones([lanes], np.float32),
            observation=tf.nest.pack_sequence_as(self.observation_spec, leaves),
        )
        answer = self._policy.action(step, self._state_of(begins, lanes))
        self._state, self._lanes = answer.state, lanes
        action = tf.nest.map_structure(np.asarray, answer.action)
        return action if is_batched else tf.nest.map_structure(lambda leaf: leaf[0], action)

    def _state_of(self, begins: np.ndarray, lanes: int) -> Any:
        if not self._is_stateful:
            return ()
        initial = self._policy.get_initial_state(lanes)
        if self._lanes is None:
            return initial

        def choose(new: np.ndarray, kept: np.ndarray) -> np.ndarray:
            new, kept = np.asarray(new), np.asarray(kept)
            return np.where(begins.reshape([-1] + [1] * (new.ndim - 1)), new, kept)

        return tf.nest.map_structure(choose, initial, self._state)

    def _checked(self, observation: Any) -> tuple[list[np.ndarray], int, bool]:
        """Returns the leaves with a batch dimension, its size, and whether the caller gave it."""
        try:
            leaves = tf.nest.flatten(self._flatten(observation))
        except (KeyError, IndexError, TypeError) as error:
            raise self._misfit("has another structure") from error
        batches: set[Any] = set()
        for index, (leaf, spec) in enumerate(zip(leaves, self._specs)):
            expected, dtype = tuple(spec.shape), np.dtype(spec.dtype)
            if not np.can_cast(leaf.dtype, dtype, "same_kind"):
                raise self._misfit(f"{spec.name} is {leaf.dtype} instead of {dtype}")
            leaves[index] = leaf.astype(dtype, copy=False)
            if leaf.shape == expected:
                batches.add(None)
            elif leaf.shape[1:] == expected and leaf.ndim == len(expected) + 1:
                batches.add(leaf.shape[0])
            else:
                raise self._misfit(
                    f"{spec.name} has shape {leaf.shape} instead of {expected}, with or without a "
                    "batch dimension before it"
                )
        if len(batches) != 1:
            raise self._misfit(
                f"its parts have batches of different sizes: {sorted(batches, key=str)}"
            )
        (size,) = batches
        if size is None:
            return [leaf[None] for leaf in leaves], 1, False
        return leaves, size, True

    def _misfit(self, what: str) -> errors.SpecMismatchError:
        return errors.SpecMismatchError(
            f"an observation does not fit the policy of {self._path}: {what}; observation_spec is "
            f"{self.observation_spec}. Use the wrappers that it was trained with"
        )
