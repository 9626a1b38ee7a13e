"""The ways to step many lanes with one call: sync, async, native and EnvPool."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import gymnasium
from gymnasium.vector import AutoresetMode

from actor_learner.environments import async_lanes, envpool, making, one_lane, quick_actions
from actor_learner.support import errors

VECTORIZATIONS = ("auto", "sync", "async", "native", "envpool")

SpaceCheck = Callable[[gymnasium.Space, gymnasium.Space], None]  # (observation, action) spaces


@dataclasses.dataclass(frozen=True)
class Vectorized:
    """A vector environment and how this kind of it is used.

    Attributes:
      env: Resets finished lanes on the step after (AutoresetMode.NEXT_STEP). What it returns may be
        overwritten by its next call.
      seeds_per_lane: Whether `env.reset(seed=)` takes one seed per lane, or one for all.
      render_first_lane: Returns the frame of lane 0.
    """

    env: gymnasium.vector.VectorEnv
    seeds_per_lane: bool
    render_first_lane: Callable[[], Any]


# Their vector versions differ from the single ones in nothing but their speed.
_SAME_WHEN_SINGLE = "gymnasium.envs.classic_control"


def choose(vectorization: str, factory: making.EnvironmentFactory, num_envs: int) -> str:
    """Resolves "auto": native if the environment has it and it can do all that is asked, else sync.

    One lane of a native environment costs as much as ten; if the single environment is known to be
    the same, that is chosen instead.

    Raises:
      errors.ConfigError: If `vectorization` is unknown.
    """
    if vectorization not in VECTORIZATIONS:
        raise errors.ConfigError(
            f"vectorization is {vectorization!r}: choose one of {', '.join(VECTORIZATIONS)}"
        )
    if vectorization != "auto":
        return vectorization
    if _native_obstacle(factory) is not None:
        return "sync"
    same = str(factory.spec.entry_point).startswith(_SAME_WHEN_SINGLE)
    return "sync" if num_envs == 1 and same else "native"


def vectorize(
    factory: making.EnvironmentFactory,
    num_envs: int,
    *,
    vectorization: str,
    timeout_seconds: float,
    check_spaces: SpaceCheck,
) -> Vectorized:
    """Makes `num_envs` lanes.

    Args:
      factory: Makes one environment.
      num_envs: Number of lanes.
      vectorization: "sync", "async" or "native" (EnvPool has no factory: see `vectorize_envpool`).
      timeout_seconds: How long "async" waits for a reset or step.
      check_spaces: Called with the spaces of one lane before anything expensive is started; may
        raise.
    """
    if vectorization == "async":
        return _async(factory, num_envs, timeout_seconds, check_spaces)
    if vectorization == "native":
        return _native(factory, num_envs, check_spaces)
    return _sync(factory, num_envs, check_spaces)


def vectorize_envpool(
    task_id: Any,
    num_envs: int,
    *,
    make_kwargs: dict[str, Any],
    max_episode_steps: int | None,
    has_wrappers: bool,
    check_spaces: SpaceCheck,
) -> Vectorized:
    """Makes an EnvPool of `num_envs` lanes."""
    if not isinstance(task_id, str):
        raise errors.ConfigError(
            f"vectorization='envpool' needs the name of an EnvPool task, not {task_id!r}"
        )
    if has_wrappers:
        raise errors.ConfigError(
            f"{task_id}: vectorization='envpool' cannot apply Gymnasium wrappers, its environments "
            "live in C++; use EnvPool's own options through make_kwargs, or vectorization='sync'"
        )
    env = envpool.EnvPoolVectorEnv(
        task_id, num_envs, make_kwargs=make_kwargs, max_episode_steps=max_episode_steps
    )
    check_spaces(env.single_observation_space, env.single_action_space)
    return Vectorized(env, seeds_per_lane=True, render_first_lane=lambda: env.render()[0])


def _sync(
    factory: making.EnvironmentFactory, num_envs: int, check_spaces: SpaceCheck
) -> Vectorized:
    lanes: list[gymnasium.Env] = []
    try:
        for _ in range(num_envs):
            lanes.append(factory())
        if len({id(lane.unwrapped) for lane in lanes}) < num_envs:
            raise errors.ConfigError(
                f"{factory.name} returned the same environment twice: each lane needs its own, so "
                "the callable must make a new one at each call"
            )
        check_spaces(lanes[0].observation_space, lanes[0].action_space)
        for index, lane in enumerate(lanes):
            for kind in ("observation_space", "action_space"):
                if getattr(lane, kind) != getattr(lanes[0], kind):
                    raise errors.ConfigError(
                        f"{factory.name}: lane {index} has {kind} {getattr(lane, kind)}, lane 0 "
                        f"has {getattr(lanes[0], kind)}: all lanes must have the same"
                    )
        with making.quiet_gymnasium():
            if num_envs == 1:
                env = one_lane.OneLane(lanes[0])
            else:
                env = gymnasium.vector.SyncVectorEnv(
                    [lambda lane=lane: lane for lane in lanes],
                    copy=False,
                    autoreset_mode=AutoresetMode.NEXT_STEP,
                )
    except BaseException:
        for lane in lanes:
            lane.close()
        raise
    return Vectorized(env, seeds_per_lane=True, render_first_lane=lanes[0].render)


def _async(
    factory: making.EnvironmentFactory,
    num_envs: int,
    timeout_seconds: float,
    check_spaces: SpaceCheck,
) -> Vectorized:
    probe = factory()
    try:
        observation_space, action_space = probe.observation_space, probe.action_space
        render_mode = probe.render_mode
        check_spaces(observation_space, action_space)
    finally:
        probe.close()
    with making.quiet_gymnasium():
        env = async_lanes.AsyncLanes(
            factory,
            num_envs,
            observation_space=observation_space,
            action_space=action_space,
            render_mode=render_mode,
            timeout_seconds=timeout_seconds,
        )
    return Vectorized(env, seeds_per_lane=True, render_first_lane=lambda: env.render()[0])


def _native(
    factory: making.EnvironmentFactory, num_envs: int, check_spaces: SpaceCheck
) -> Vectorized:
    obstacle = _native_obstacle(factory)
    if obstacle is not None:
        raise errors.ConfigError(
            f"{factory.name}: vectorization='native' is not possible: {obstacle}; use 'sync' or "
            "'async'"
        )
    kwargs = dict(factory.make_kwargs)
    if factory.max_episode_steps is not None:
        kwargs["max_episode_steps"] = factory.max_episode_steps
    with making.quiet_gymnasium(), making.explained(factory.name, factory.spec):
        env = gymnasium.make_vec(
            factory.spec, num_envs=num_envs, vectorization_mode="vector_entry_point", **kwargs
        )
    try:
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP.value):
            raise errors.ConfigError(
                f"{factory.name}: its vector environment reports autoreset mode {mode}, but only "
                "NEXT_STEP keeps the final observation of each episode; use vectorization='sync'"
            )
        making.refuse_running_statistics(env)
        check_spaces(env.single_observation_space, env.single_action_space)
        quick_actions.quicken(env)
    except BaseException:
        env.close()
        raise
    return Vectorized(env, seeds_per_lane=False, render_first_lane=lambda: env.render()[0])


def _native_obstacle(factory: making.EnvironmentFactory) -> str | None:
    if factory.spec is None:
        return "the environment comes from a callable, not from an id"
    if factory.spec.vector_entry_point is None:
        return "the id has no vector_entry_point"
    if factory.wrappers or factory.spec.additional_wrappers:
        return "wrappers apply to single environments"
    if factory.max_episode_steps == 0:
        return "native environments apply their own time limit, so it cannot be taken away"
    return None
