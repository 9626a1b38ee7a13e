"""`GymnasiumWrapper`: one Gymnasium environment as an unbatched TF-Agents PyEnvironment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import finite, making, nests, seeding, specs
from actor_learner.support import configurable, errors

_LAST = int(ts.StepType.LAST)


@configurable.register
class GymnasiumWrapper(py_environment.PyEnvironment):
    """The counterpart of TF-Agents' `GymWrapper` for Gymnasium.

    Unlike it, a truncated episode keeps its discount (only termination sets it to 0), dtypes are
    those of the spaces, and actions are zero-based whatever the space's `start`. Arrays of a
    TimeStep belong to the caller and are never written again.
    """

    def __init__(
        self,
        gym_env: gymnasium.Env,
        discount: float = 1.0,
        spec_dtype_map: specs.DtypeMap | None = None,
        match_obs_space_dtype: bool = True,
        auto_reset: bool = True,
        simplify_box_bounds: bool = True,
        render_kwargs: Mapping[str, Any] | None = None,
        *,
        check_finite: bool = True,
    ):
        """Wraps `gym_env`, which this object owns from now on.

        Args:
          gym_env: The environment.
          discount: The discount of steps that do not terminate.
          spec_dtype_map: Dtypes to use instead of the spaces' own, by class of space.
          match_obs_space_dtype: Whether observations are converted to the spec's dtypes; if not
            they are copied with the dtypes that the environment gives.
          auto_reset: Whether the step after LAST resets.
          simplify_box_bounds: Whether bounds equal for all elements become scalars in the specs.
          render_kwargs: Keyword arguments for the `render()` of the innermost environment; wrappers
            of Gymnasium accept none, so they are passed by.
          check_finite: Whether `reset` and `step` raise `errors.NotFiniteError` for rewards and
            observations that are NaN or infinite.

        Raises:
          errors.SpecMismatchError: If a space is not supported.
        """
        super().__init__(handle_auto_reset=auto_reset)
        self._gym_env = gym_env
        self._discount = np.asarray(discount, dtype=np.float32)
        self._render_kwargs = dict(render_kwargs or {})
        options = {"dtype_map": spec_dtype_map, "simplify_box_bounds": simplify_box_bounds}
        self._observation_spec = specs.space_to_spec(
            gym_env.observation_space, "observation", **options
        )
        self._action_spec = specs.space_to_spec(
            gym_env.action_space, "action", zero_based=True, **options
        )
        self._encode_action = specs.compile_action(gym_env.action_space, num_lanes=None)
        self._copy_observation = specs.compile_observation(
            self._observation_spec, match_dtype=match_obs_space_dtype
        )
        self._as_lane = nests.compile_map(
            (self.reward_spec(), self._observation_spec), lambda spec: lambda value: value[None]
        )
        self._pending_seed: int | None = None
        self._info: dict[str, Any] | None = None
        self._done = True
        self._finite: finite.FiniteCheck | None = None
        if check_finite:
            self._finite = finite.FiniteCheck(
                str(gym_env), self.reward_spec(), self._observation_spec, num_lanes=1
            )

    @property
    def check_finite(self) -> bool:
        """Whether what is not finite is refused."""
        return self._finite is not None

    @property
    def gym(self) -> gymnasium.Env:
        """The Gymnasium environment underneath."""
        return self._gym_env

    @property
    def done(self) -> bool:
        """Whether the episode is over, or none has begun."""
        return self._done

    def __getattr__(self, name: str) -> Any:
        # Scripts reach for attributes of their environment through its wrapper.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._gym_env.get_wrapper_attr(name)

    def observation_spec(self) -> specs.SpecNest:
        return self._observation_spec

    def action_spec(self) -> specs.SpecNest:
        return self._action_spec

    def get_info(self) -> dict[str, Any] | None:
        """The info of the last `reset` or `step`; None before the first `reset`."""
        return self._info

    def seed(self, seed: int) -> int:
        """Seeds the environment at the next `reset()`. Returns `seed`."""
        self._pending_seed = seeding.checked_seed(seed)
        return seed

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders: a frame, if it was made with that mode.

        Raises:
          errors.ConfigError: If it was made with another `render_mode` than `mode`, or its own
            `render()` does not take the `render_kwargs` given.
        """
        if mode != self._gym_env.render_mode:
            raise errors.ConfigError(
                f"render(mode={mode!r}) of an environment that was made with "
                f"render_mode={self._gym_env.render_mode!r}: Gymnasium fixes the mode when an "
                f"environment is made, as in load(name, gym_kwargs={{'render_mode': {mode!r}}})"
            )
        with making.quiet_gymnasium():
            if not self._render_kwargs:
                return self._gym_env.render()
            try:
                return self._gym_env.unwrapped.render(**self._render_kwargs)
            except TypeError as error:
                raise errors.ConfigError(
                    f"render() of {self._gym_env.unwrapped} does not take the render_kwargs "
                    f"{self._render_kwargs}: {error}; Gymnasium's environments take size and "
                    "camera when they are made: use gym_kwargs"
                ) from error

    def close(self) -> None:
        self._gym_env.close()

    def should_reset(self, current_time_step: ts.TimeStep) -> bool:
        """As in the base class, which asks the time step whether it is a tensor, at length."""
        return self._handle_auto_reset and int(current_time_step.step_type) == _LAST

    def _reset(self) -> ts.TimeStep:
        seed, self._pending_seed = self._pending_seed, None
        observation, self._info = self._gym_env.reset(seed=seed)
        self._done = False
        observation = self._copy_observation(observation)
        reward = np.zeros((), dtype=np.float32)
        if self._finite is not None:
            self._finite.reset(*self._as_lane((reward, observation)))
        return ts.TimeStep(
            np.array(ts.StepType.FIRST), reward, np.ones((), dtype=np.float32), observation
        )

    def _step(self, action: Any) -> ts.TimeStep:
        observation, reward, terminated, truncated, self._info = self._gym_env.step(
            self._encode_action(action)
        )
        self._done = bool(terminated or truncated)
        observation = self._copy_observation(observation)
        reward = np.array(reward, dtype=np.float32)
        if self._finite is not None:
            self._finite.step(*self._as_lane((reward, observation)), None)
        return ts.TimeStep(
            np.array(ts.StepType.LAST if self._done else ts.StepType.MID),
            reward,
            np.zeros((), dtype=np.float32) if terminated else self._discount.copy(),
            observation,
        )
