"""Gymnasium environments by name, in the manner of TF-Agents' `suite_gym`.

In gin files the functions are `suite_gymnasium.load` and `suite_gymnasium.wrap_env`: the bare name
`load` would take away TF-Agents' many functions of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import gin
import gymnasium
from tf_agents.environments import py_environment, wrappers

from actor_learner.environments import gymnasium_wrapper, making, specs

TimeLimitWrapper = Callable[
    [py_environment.PyEnvironment, int], py_environment.PyEnvironment
]  # (env, max_episode_steps) -> env
PyEnvironmentWrapper = Callable[[py_environment.PyEnvironment], py_environment.PyEnvironment]


@gin.configurable(module="suite_gymnasium")
def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[making.WrapperLike] = (),
    env_wrappers: Sequence[PyEnvironmentWrapper] = (),
    spec_dtype_map: specs.DtypeMap | None = None,
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    *,
    check_finite: bool = True,
) -> py_environment.PyEnvironment:
    """Makes one environment and wraps it as an unbatched PyEnvironment.

    The time limit is applied outside the Gymnasium wrappers, as `suite_gym` does. A Gymnasium
    wrapper that must see truncations itself (`RecordEpisodeStatistics`, `TimeAwareObservation`)
    needs `max_episode_steps=0` and `('TimeLimit', {'max_episode_steps': n})` before it in
    `gym_env_wrappers`.

    Args:
      environment_name: A Gymnasium id.
      discount: The discount of steps that do not terminate.
      max_episode_steps: Time limit; None for the registered one, 0 for none.
      gym_env_wrappers: Gymnasium wrappers in order: callables env -> env, or as described at
        `GymnasiumEnvironment`.
      env_wrappers: Wrappers of the resulting PyEnvironment, in order.
      spec_dtype_map: Dtypes to use instead of the spaces' own, by class of space.
      gym_kwargs: Keyword arguments of `gymnasium.make`. Unless they say otherwise the environment
        is made with `render_mode="rgb_array"` where it has that, so that `render()` works.
      render_kwargs: Keyword arguments of the environment's own `render()`.
      check_finite: Whether rewards and observations that are NaN or infinite are refused.

    Raises:
      errors.ConfigError: If the environment does not exist (with the nearest ids) or cannot be
        made.
      errors.MissingExtraError: If a package that it needs is not installed.
      errors.SpecMismatchError: If one of its spaces is not supported.
    """
    gym_env, spec = make_gym_env(environment_name, gym_kwargs)
    if max_episode_steps is None:
        max_episode_steps = spec.max_episode_steps
    return wrap_env(
        gym_env,
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=gym_env_wrappers,
        env_wrappers=env_wrappers,
        spec_dtype_map=spec_dtype_map,
        render_kwargs=render_kwargs,
        check_finite=check_finite,
    )


@gin.configurable(module="suite_gymnasium")
def wrap_env(
    gym_env: gymnasium.Env,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[making.WrapperLike] = (),
    time_limit_wrapper: TimeLimitWrapper = wrappers.TimeLimit,
    env_wrappers: Sequence[PyEnvironmentWrapper] = (),
    spec_dtype_map: specs.DtypeMap | None = None,
    auto_reset: bool = True,
    render_kwargs: Mapping[str, Any] | None = None,
    *,
    check_finite: bool = True,
) -> py_environment.PyEnvironment:
    """Wraps a Gymnasium environment as an unbatched PyEnvironment.

    Args:
      gym_env: The environment; the result owns it.
      discount: The discount of steps that do not terminate.
      max_episode_steps: Time limit; None or 0 for none.
      gym_env_wrappers: Gymnasium wrappers, applied first, in order.
      time_limit_wrapper: Called as `(env, max_episode_steps)` if there is a limit.
      env_wrappers: Wrappers of the PyEnvironment, applied last, in order.
      spec_dtype_map: Dtypes to use instead of the spaces' own, by class of space.
      auto_reset: Whether the step after LAST resets.
      render_kwargs: Keyword arguments of the environment's own `render()`.
      check_finite: Whether rewards and observations that are NaN or infinite are refused.
    """
    gym_env = making.apply_wrappers(gym_env, [making.as_wrapper(w) for w in gym_env_wrappers])
    making.refuse_running_statistics(gym_env)
    env: py_environment.PyEnvironment = gymnasium_wrapper.GymnasiumWrapper(
        gym_env,
        discount=discount,
        spec_dtype_map=spec_dtype_map,
        auto_reset=auto_reset,
        render_kwargs=render_kwargs,
        check_finite=check_finite,
    )
    if max_episode_steps:
        env = time_limit_wrapper(env, max_episode_steps)
    for wrapper in env_wrappers:
        env = wrapper(env)
    return env


def make_gym_env(
    environment_name: str, gym_kwargs: Mapping[str, Any] | None = None
) -> tuple[gymnasium.Env, gymnasium.envs.registration.EnvSpec]:
    """Makes one Gymnasium environment without its time limit; also returns its spec."""
    spec = making.find_spec(environment_name)
    factory = making.environment_factory(
        environment_name,
        make_kwargs={**_default_render_mode(spec), **(gym_kwargs or {})},
        max_episode_steps=0,
    )
    return factory(), spec


def _default_render_mode(spec: gymnasium.envs.registration.EnvSpec) -> dict[str, str]:
    with making.quiet_gymnasium(), making.explained(spec.id, spec):
        creator = spec.entry_point
        if isinstance(creator, str):
            creator = gymnasium.envs.registration.load_env_creator(creator)
    modes = getattr(creator, "metadata", {}).get("render_modes", ())
    return {"render_mode": "rgb_array"} if "rgb_array" in modes else {}
