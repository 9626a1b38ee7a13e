"""A single environment as a vector environment of one lane, without the cost of batching."""

from __future__ import annotations

from typing import Any, Callable

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

_Convert = Callable[[Any], Any]


class OneLane(gymnasium.vector.VectorEnv):
    """Steps one environment; a step after the end of an episode resets it.

    Gives what `gymnasium.vector.SyncVectorEnv` of this one environment would, in NEXT_STEP mode, in
    a third of the time. Observations and rewards may be overwritten by the next call.

    Args:
      env: The environment; closed with this one.
    """

    num_envs = 1

    def __init__(self, env: gymnasium.Env) -> None:
        self.env = env
        self.render_mode = env.render_mode
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(env.observation_space, 1)
        self.action_space = gymnasium.vector.utils.batch_space(env.action_space, 1)
        self._batch = _compile(env.observation_space, _add_lane)
        self._unbatch = _compile(env.action_space, lambda space: _remove_lane)
        self._ended = False

    def reset(
        self, *, seed: list[int | None] | int | None = None, options: dict | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if isinstance(seed, (list, tuple)):
            (seed,) = seed
        self._ended = False
        observation, info = self.env.reset(seed=seed, options=options)
        return self._batch(observation), self._add_lane_to(info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._ended:
            self._ended = False
            observation, info = self.env.reset()
            reward, terminated, truncated = 0.0, False, False
        else:
            observation, reward, terminated, truncated, info = self.env.step(self._unbatch(actions))
            self._ended = bool(terminated or truncated)
        return (
            self._batch(observation),
            _of_one_lane("reward", reward, np.float64),
            _of_one_lane("terminated", terminated, np.bool_),
            _of_one_lane("truncated", truncated, np.bool_),
            self._add_lane_to(info),
        )

    def render(self) -> tuple[Any, ...]:
        return (self.env.render(),)

    def close_extras(self, **kwargs: Any) -> None:
        self.env.close()

    def _add_lane_to(self, info: dict[str, Any]) -> dict[str, Any]:
        return self._add_info({}, info, 0) if info else {}


def _compile(space: gymnasium.Space, make_leaf: Callable[[gymnasium.Space], _Convert]) -> _Convert:
    """A function over values of `space`, which looks at its nesting only now."""
    if isinstance(space, spaces.Dict):
        entries = [(key, _compile(child, make_leaf)) for key, child in space.spaces.items()]
        return lambda value: {key: convert(value[key]) for key, convert in entries}
    if isinstance(space, spaces.Tuple):
        converts = list(enumerate(_compile(child, make_leaf) for child in space.spaces))
        return lambda value: tuple(convert(value[i]) for i, convert in converts)
    return make_leaf(space)


def _add_lane(space: gymnasium.Space) -> _Convert:
    dtype, shape = space.dtype, space.shape

    def add_lane(value: Any) -> np.ndarray:
        value = np.asarray(value, dtype)
        if value.shape != shape:
            raise ValueError(
                f"an observation has the shape {value.shape}, but its space {space} has {shape}"
            )
        return value[np.newaxis]

    return add_lane


def _of_one_lane(name: str, value: Any, dtype: type) -> np.ndarray:
    """The value as an array `[1]`; arrays of one element are taken for that element."""
    lane = np.array([value], dtype)
    if lane.ndim == 1:
        return lane
    if lane.size != 1:
        raise ValueError(f"{name} has the shape {lane.shape[1:]}: one number is expected")
    return lane.reshape(1)


def _remove_lane(value: Any) -> Any:
    return value[0]
