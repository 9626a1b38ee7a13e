"""What an actor drives: any environment as lanes, every array with a leading `[lanes]`."""

from __future__ import annotations

from typing import Any, Callable, Protocol

import gymnasium
import numpy as np
from tf_agents.environments import py_environment, tf_environment
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import finite, nests
from actor_learner.support import errors


class Lanes(Protocol):
    """An environment whose TimeSteps and actions are NumPy with leading `[num_lanes]`.

    Attributes:
      num_lanes: Number of lanes.
      batched: Whether the environment underneath is batched itself; if not, `num_lanes` is 1.
      num_waiting: Lanes that wait for their turn, and take no step when the next one is taken.
      env: The environment underneath.
    """

    num_lanes: int
    batched: bool
    num_waiting: int
    env: py_environment.PyEnvironment

    def reset(self) -> ts.TimeStep:
        """Resets all lanes."""

    def step(self, action: Any) -> ts.TimeStep:
        """Steps all lanes; those that gave LAST before are reset instead."""

    def time_step_spec(self) -> ts.TimeStep:
        """Specs of one lane, without the leading dimension."""

    def action_spec(self) -> Any:
        """Spec of the action of one lane, without the leading dimension."""

    def get_info(self) -> Any:
        """The environment's info on the last step, as it gives it."""

    def close(self) -> None:
        """Closes the environment."""


def as_lanes(env: Any) -> Lanes:
    """Presents an environment as lanes; what is lanes already is returned as it is.

    What an environment gives that is NaN or infinite raises `errors.NotFiniteError`. One that has
    an attribute `check_finite`, as ours have, also if others are wrapped around it, sees to that
    itself, or does without.

    Raises:
      errors.SpecMismatchError: If `env` is not a TF-Agents PyEnvironment. The message says how to
        make it one.
    """
    if isinstance(env, (BatchedLanes, SingleLane)):
        return env
    if isinstance(env, py_environment.PyEnvironment):
        if are_apart(env):
            return LanesApart(env)
        return BatchedLanes(env) if env.batched else SingleLane(env)
    if isinstance(env, tf_environment.TFEnvironment):
        hint = "pass the PyEnvironment inside it (`env.pyenv` of a TFPyEnvironment)"
    elif isinstance(env, gymnasium.Env):
        hint = "wrap it with suite_gymnasium.wrap_env(env), or give its id to GymnasiumEnvironment"
    elif isinstance(env, str):
        hint = f"make it with GymnasiumEnvironment({env!r}) or suite_gymnasium.load({env!r})"
    else:
        hint = "GymnasiumEnvironment and suite_gymnasium.load make such environments"
    raise errors.SpecMismatchError(
        f"{type(env).__module__}.{type(env).__name__} cannot be driven by an actor, which takes a "
        f"tf_agents PyEnvironment, batched or not: {hint}"
    )


def are_apart(env: Any) -> bool:
    """Whether lanes take steps of their own, as agents do that take turns, rather than together."""
    return getattr(env, "turn_based", False)


class BatchedLanes:
    """A batched PyEnvironment as it is: calls go straight to it."""

    batched = True
    num_waiting = 0

    def __init__(self, env: py_environment.PyEnvironment):
        self.env = env
        self.num_lanes: int = env.batch_size
        # Bound here so that a step costs no call of ours.
        self.reset: Callable[[], ts.TimeStep] = env.reset
        self.step: Callable[[Any], ts.TimeStep] = env.step
        self._finite = _finite_check(env, self.num_lanes)
        if self._finite is not None:
            self.reset, self.step = self._checked_reset, self._checked_step
        self.time_step_spec: Callable[[], ts.TimeStep] = env.time_step_spec
        self.action_spec: Callable[[], Any] = env.action_spec
        self.get_info: Callable[[], Any] = env.get_info
        self.close: Callable[[], None] = env.close

    def _checked_reset(self) -> ts.TimeStep:
        time_step = self.env.reset()
        self._finite.reset(time_step.reward, time_step.observation)
        return time_step

    def _checked_step(self, action: Any) -> ts.TimeStep:
        time_step = self.env.step(action)
        self._finite.step(time_step.reward, time_step.observation, _first_lanes(time_step))
        return time_step


class LanesApart(BatchedLanes):
    """Lanes of which some wait while others take a step."""

    @property
    def num_waiting(self) -> int:  # type: ignore[override]
        return self.env.num_waiting


class SingleLane:
    """An unbatched PyEnvironment with a leading `[1]` on every array.

    Arrays are copied, into the dtypes of the specs, so they outlive the environment's own buffers.

    Attributes:
      current: The latest TimeStep without that dimension, of the same memory,
      previous: the one before, or None after a reset,
      action: and the action between them.
    """

    batched = False
    num_lanes = 1
    num_waiting = 0

    def __init__(self, env: py_environment.PyEnvironment):
        self.env = env
        self._time_step_spec = env.time_step_spec()
        self._action_spec = env.action_spec()
        self._copy = nests.compile_map(self._time_step_spec, _copy_leaf)
        self._batch = nests.compile_map(self._time_step_spec, lambda spec: _add_lane)
        self._unbatch = nests.compile_map(self._action_spec, _remove_lane)
        self._finite = _finite_check(env, num_lanes=1)
        self.previous: ts.TimeStep | None = None
        self.current: ts.TimeStep | None = None
        self.action: Any = None

    def reset(self) -> ts.TimeStep:
        self.previous, self.current = None, self._copy(self.env.reset())
        time_step = self._batch(self.current)
        if self._finite is not None:
            self._finite.reset(time_step.reward, time_step.observation)
        return time_step

    def step(self, action: Any) -> ts.TimeStep:
        self.action = self._unbatch(action)
        current = self._copy(self.env.step(self.action))
        self.previous, self.current = self.current, current
        time_step = self._batch(current)
        if self._finite is not None:
            self._finite.step(time_step.reward, time_step.observation, _first_lanes(time_step))
        return time_step

    def time_step_spec(self) -> ts.TimeStep:
        return self._time_step_spec

    def action_spec(self) -> Any:
        return self._action_spec

    def get_info(self) -> Any:
        return self.env.get_info()

    def close(self) -> None:
        self.env.close()


def _finite_check(env: py_environment.PyEnvironment, num_lanes: int) -> finite.FiniteCheck | None:
    """The check of an environment that does not decide on one itself."""
    if getattr(env, "check_finite", None) is not None:
        return None
    spec = env.time_step_spec()
    return finite.FiniteCheck(type(env).__name__, spec.reward, spec.observation, num_lanes)


def _first_lanes(time_step: ts.TimeStep) -> np.ndarray:
    return np.asarray(time_step.step_type) == ts.StepType.FIRST


def _copy_leaf(spec: Any) -> Callable[[Any], np.ndarray]:
    dtype = spec.dtype
    return lambda value: np.array(value, dtype=dtype)


def _add_lane(array: np.ndarray) -> np.ndarray:
    return array[np.newaxis]


def _remove_lane(spec: Any) -> Callable[[Any], np.ndarray]:
    batched_shape, shape = (1, *spec.shape), spec.shape

    def remove(value: Any) -> np.ndarray:
        value = np.asarray(value)
        if value.shape != batched_shape:
            raise errors.SpecMismatchError(
                f"action {spec.name!r} has shape {value.shape}, one lane expects {batched_shape}"
            )
        return value.reshape(shape)

    return remove
