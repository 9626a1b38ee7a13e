"""Refuses rewards and observations that are NaN or infinite, where they enter.

Lanes of every kind meet in the process that drives them; one look there covers them all.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from actor_learner.environments import nests
from actor_learner.support import errors

_INFINITY = np.float32(np.inf)

Reader = Callable[[tuple[Any, Any]], np.ndarray]  # From (reward, observation) to one leaf.


class FiniteCheck:
    """Looks at every reward and every float observation of an environment.

    The sum of an array's squares is finite only if all of it is (unless squares overflow, which is
    then looked at closely), and costs a fifth of looking at each element. Integers and bytes cost
    nothing.

    Args:
      name: The environment's, for errors.
      reward_spec: Nest of ArraySpecs, of one lane.
      observation_spec: Nest of ArraySpecs, of one lane.
      num_lanes: The leading dimension of all arrays.
      switch: The binding that turns the check off, for errors.
    """

    def __init__(
        self,
        name: str,
        reward_spec: Any,
        observation_spec: Any,
        num_lanes: int,
        switch: str = "check_finite",
    ) -> None:
        self._name = name
        self._switch = switch
        self._leaves = [
            *_float_leaves(reward_spec, "reward", lambda pair: pair[0]),
            *_float_leaves(observation_spec, "observation", lambda pair: pair[1]),
        ]
        # The common case, in which nothing has to be searched for.
        self._one_each = [path for path, _ in self._leaves] == ["reward", "observation"]
        self._steps = 0
        self._begun = np.zeros(num_lanes, np.int64)  # The step that each lane's episode began at.

    def reset(self, reward: Any, observation: Any) -> None:
        """Checks what a reset of all lanes gave; see `step`."""
        self._begun[:] = self._steps
        self._check(reward, observation)

    def step(self, reward: Any, observation: Any, first: np.ndarray | None) -> None:
        """Checks what a step gave, be it the last of an episode or the reset after it.

        Args:
          reward: Arrays `[lanes, ...]`.
          observation: Arrays `[lanes, ...]`.
          first: `[lanes]`, which of them were reset; None if none was.

        Raises:
          errors.NotFiniteError: Names environment, lane, step and field.
        """
        self._steps += 1
        if first is not None:
            self._begun[first] = self._steps
        if self._one_each:
            flat = observation.ravel("K")
            if not reward.dot(reward) + flat.dot(flat) < _INFINITY:  # Which is true of NaN as well.
                self._look_closely(reward, observation)
        else:
            self._check(reward, observation)

    def all_steps(self, reward: Any, observation: Any, first: np.ndarray) -> bool:
        """Whether many steps are finite: one look instead of as many calls of `step`.

        If they are not, nothing is counted: `step` then says which one it is.

        Args:
          reward: Arrays `[T, lanes, ...]`.
          observation: Arrays `[T, lanes, ...]`.
          first: `[T, lanes]`, which steps were resets.
        """
        for _, read in self._leaves:
            flat = read((reward, observation)).ravel("K")
            if not flat.dot(flat) < _INFINITY:
                return False
        length = len(first)
        resets = np.where(first, np.arange(1, length + 1)[:, np.newaxis], 0).max(axis=0)
        self._begun = np.where(resets, self._steps + resets, self._begun)
        self._steps += length
        return True

    def _check(self, reward: Any, observation: Any) -> None:
        pair = (reward, observation)
        for _, read in self._leaves:
            flat = read(pair).ravel("K")
            if not flat.dot(flat) < _INFINITY:
                self._look_closely(reward, observation)

    def _look_closely(self, reward: Any, observation: Any) -> None:
        """Raises for the first value that is not finite; squares of large ones are not, either."""
        for path, read in self._leaves:
            values = read((reward, observation))
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                first = tuple(bad[0].tolist())
                element = str(list(first[1:])) if len(first) > 1 else ""
                self._refuse(f"{path}{element}", values[first], first[0], len(bad))

    def _refuse(self, field: str, value: Any, lane: int, count: int) -> None:
        more = f" ({count} values of this field are not finite)" if count > 1 else ""
        raise errors.NotFiniteError(
            f"environment {self._name!r}: {field} of lane {lane} is {value} at step "
            f"{self._steps - self._begun[lane]} of its episode, step {self._steps} in all{more}. "
            "Learning from it would destroy what was learned: mend the environment (`actor-learner "
            "check-env` looks for such values), or wrap it, e.g. with 'TransformObservation' or "
            f"'TransformReward'. {self._switch} = False lets them pass"
        )


def _float_leaves(spec: Any, path: str, read: Reader) -> list[tuple[str, Reader]]:
    """Path and reader of each leaf that can hold something that is not finite."""
    children = nests.children(spec)
    if children is None:
        return [(path, read)] if np.issubdtype(spec.dtype, np.floating) else []
    found = []
    for key, child in children:

        def read_child(pair: tuple[Any, Any], key: Any = key) -> np.ndarray:
            return read(pair)[key]

        found += _float_leaves(child, f"{path}[{key!r}]", read_child)
    return found
