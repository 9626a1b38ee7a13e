import inspect

import gin
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tf_agents.environments import suite_gym, wrappers

from actor_learner.environments import suite_gymnasium
from actor_learner.support import errors
from tests import counting_environment

F, M, L = 0, 1, 2


def _run(env, num_steps):
    return [env.reset(), *(env.step(np.zeros((), np.int64)) for _ in range(num_steps))]


@pytest.mark.parametrize("name", ["load", "wrap_env"])
def test_arguments_are_those_of_suite_gym(name):
    theirs = inspect.signature(getattr(suite_gym, name)).parameters.values()
    ours = inspect.signature(getattr(suite_gymnasium, name)).parameters.values()

    ours = [p for p in ours if p.kind != p.KEYWORD_ONLY]  # Additions of ours.
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]


def test_the_registered_time_limit_keeps_the_discount_and_the_final_observation():
    env = suite_gymnasium.load("MountainCar-v0")
    time_steps = _run(env, 201)

    assert not env.batched
    assert [int(t.step_type) for t in time_steps] == [F] + [M] * 199 + [L, F]
    assert float(time_steps[200].discount) == 1.0
    assert float(time_steps[201].reward) == 0.0


def test_another_time_limit_replaces_the_registered_one():
    time_steps = _run(suite_gymnasium.load("MountainCar-v0", max_episode_steps=3), 4)

    assert [int(t.step_type) for t in time_steps] == [F, M, M, L, F]


def test_a_time_limit_of_zero_is_none():
    time_steps = _run(suite_gymnasium.load("MountainCar-v0", max_episode_steps=0), 250)

    assert [int(t.step_type) for t in time_steps] == [F] + [M] * 250


def test_termination_ends_the_discount_and_the_next_step_is_first():
    env = suite_gymnasium.load("CountingEnv-v0", gym_kwargs={"episode_lengths": (2,)})
    time_steps = _run(env, 3)

    assert [int(t.step_type) for t in time_steps] == [F, M, L, F]
    assert [float(t.discount) for t in time_steps] == [1.0, 1.0, 0.0, 1.0]


def test_the_discount_is_that_of_steps_that_do_not_terminate():
    env = suite_gymnasium.load("CountingEnv-v0", discount=0.5, max_episode_steps=2)

    assert [float(t.discount) for t in _run(env, 3)] == [1.0, 0.5, 0.5, 1.0]


def test_gym_env_wrappers_and_env_wrappers_apply_in_order():
    env = suite_gymnasium.load(
        "CountingEnv-v0",
        gym_env_wrappers=(
            lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: reward + 1),
            ("TransformReward", {"func": lambda reward: reward * 10}),
        ),
        env_wrappers=(wrappers.RunStats, lambda env: wrappers.ActionRepeat(env, 2)),
    )

    assert isinstance(env, wrappers.ActionRepeat)
    assert isinstance(env.wrapped_env(), wrappers.RunStats)
    assert float(_run(env, 1)[1].reward) == (1 + 1) * 10 + (2 + 1) * 10


def test_spec_dtype_map_is_honoured():
    env = suite_gymnasium.load("CountingEnv-v0", spec_dtype_map={spaces.Discrete: np.int32})

    assert env.action_spec().dtype == np.int32


def test_rendering_works_without_being_asked_for_and_gym_kwargs_come_first():
    env = suite_gymnasium.load("CountingEnv-v0")
    env.reset()
    assert env.render().shape == (8, 8, 3)

    env = suite_gymnasium.load("CountingEnv-v0", gym_kwargs={"render_mode": None})
    env.reset()
    with pytest.raises(errors.ConfigError, match="render_mode"):
        env.render()


def test_render_kwargs_reach_the_environment():
    env = suite_gymnasium.load("CountingEnv-v0", render_kwargs={"zoom": 2})
    env.reset()

    with pytest.raises(errors.ConfigError, match="zoom"):  # CountingEnv.render takes nothing.
        env.render()


def test_unknown_names_are_a_config_error_with_the_nearest():
    with pytest.raises(errors.ConfigError, match="did you mean CartPole-v1"):
        suite_gymnasium.load("CartPol-v1")


def test_wrap_env_honours_time_limit_wrapper_and_auto_reset():
    limits = []

    def time_limit(env, max_episode_steps):
        limits.append(max_episode_steps)
        return wrappers.TimeLimit(env, max_episode_steps)

    env = suite_gymnasium.wrap_env(
        counting_environment.CountingEnv((1,)),
        max_episode_steps=7,
        time_limit_wrapper=time_limit,
        auto_reset=False,
    )
    env.reset()
    env.step(0)

    assert limits == [7]
    assert not env.should_reset(env.current_time_step())
    assert not suite_gymnasium.wrap_env(
        counting_environment.CountingEnv(), auto_reset=False
    ).should_reset(env.current_time_step())


def test_gin_binds_them_by_module():
    gin.parse_config("suite_gymnasium.load.max_episode_steps = 2")
    try:
        time_steps = _run(suite_gymnasium.load("MountainCar-v0"), 2)
    finally:
        gin.clear_config()

    assert [int(t.step_type) for t in time_steps] == [F, M, L]
