import functools
import sys

import gymnasium
import pytest

from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments import making, suite_gymnasium
from actor_learner.support import errors
from tests import counting_environment


def _no_environment():
    return "not an environment"


def test_unknown_ids_name_the_nearest_ones():
    with pytest.raises(errors.ConfigError, match="CartPol-v1: did you mean CartPole-v1"):
        making.find_spec("CartPol-v1")


def test_unknown_versions_name_the_ones_there_are():
    with pytest.raises(errors.ConfigError, match="did you mean .*CartPole-v1"):
        making.find_spec("CartPole-v7")


def test_ids_like_no_other_say_how_to_import_the_package():
    with pytest.raises(errors.ConfigError, match="my_module:Zzyzx-v0"):
        making.find_spec("Zzyzx-v0")


def test_ids_without_version_mean_the_highest_one():
    assert making.find_spec("CartPole").id == "CartPole-v1"


def test_ids_may_name_the_module_that_registers_them():
    spec = making.find_spec("tests.counting_environment:CountingEnv-v0")

    assert spec.id == "CountingEnv-v0"


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(errors.ConfigError, match="no_such_package"):
        making.find_spec("no_such_package:Thing-v0")


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4", "Pong-ram-v4"])
def test_atari_without_ale_names_the_extra(env_id, monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(gymnasium.registry, env_id, raising=False)

    with pytest.raises(errors.MissingExtraError, match=r"\.\[atari\]"):
        making.find_spec(env_id)


@pytest.mark.parametrize(
    "env_id, package, extra",
    [("Ant-v5", "mujoco", "mujoco"), ("LunarLander-v3", "Box2D", "box2d")],
)
def test_missing_simulators_name_the_extra(env_id, package, extra, monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] == package or name.startswith(f"gymnasium.envs.{extra}"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(errors.MissingExtraError, match=rf"{package}.*\.\[{extra}\]"):
        making.environment_factory(env_id)()


def test_arguments_that_the_environment_does_not_take_are_a_config_error():
    factory = making.environment_factory("CartPole-v1", make_kwargs={"gravitas": 1})

    with pytest.raises(errors.ConfigError, match="CartPole-v1.*gravitas"):
        factory()


def test_callables_get_the_make_kwargs_and_the_time_limit():
    factory = making.environment_factory(
        counting_environment.CountingEnv, make_kwargs={"episode_lengths": (9,)}, max_episode_steps=2
    )
    env = factory()

    env.reset()
    flags = [env.step(0)[2:4] for _ in range(2)]

    assert factory.name == "CountingEnv"
    assert flags == [(False, False), (False, True)]


def test_callables_must_return_an_environment():
    with pytest.raises(errors.ConfigError, match="_no_environment returned a builtins.str"):
        making.environment_factory(_no_environment)()


def test_anything_else_is_no_environment():
    with pytest.raises(errors.ConfigError, match="env_id is 3"):
        making.environment_factory(3)


def test_max_episode_steps_of_zero_takes_the_limit_away():
    limits = [
        making.environment_factory("CartPole-v1", max_episode_steps=limit)().spec.max_episode_steps
        for limit in (None, 0, 7)
    ]

    assert limits == [500, None, 7]


def test_negative_time_limits_are_refused():
    with pytest.raises(errors.ConfigError, match="max_episode_steps is -3"):
        making.environment_factory("CartPole-v1", max_episode_steps=-3)


def test_wrappers_are_callables_names_or_pairs_with_arguments_applied_in_order():
    factory = making.environment_factory(
        "CountingEnv-v0",
        wrappers=[
            ("TransformReward", {"func": lambda reward: reward + 1}),
            lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: reward * 10),
            "gymnasium.wrappers:RecordEpisodeStatistics",
            "FlattenObservation",
        ],
    )
    env = factory()

    env.reset()

    assert env.step(0)[1] == (1 + 1) * 10
    assert isinstance(env, gymnasium.wrappers.FlattenObservation)
    assert isinstance(env.env, gymnasium.wrappers.RecordEpisodeStatistics)


@pytest.mark.parametrize(
    "wrapper, message",
    [
        ("FlatenObservation", "did you mean FlattenObservation"),
        ("no_such_package:Wrapper", "no_such_package"),
        (3, "3 is not a wrapper"),
    ],
)
def test_unknown_wrappers_are_refused(wrapper, message):
    with pytest.raises(errors.ConfigError, match=message):
        making.environment_factory("CartPole-v1", wrappers=[wrapper])


@pytest.mark.parametrize(
    "wrapper, parameter",
    [
        ("NormalizeObservation", "normalize_observations"),
        ("NormalizeReward", "normalize_rewards"),
        ("VectorNormalizeReward", "normalize_rewards"),
        (("NormalizeReward", {"gamma": 0.9}), "normalize_rewards"),
        ("gymnasium.wrappers:NormalizeObservation", "normalize_observations"),
        ("gymnasium.wrappers.vector:NormalizeObservation", "normalize_observations"),
        ("gymnasium.wrappers.vector:NormalizeReward", "normalize_rewards"),
        (gymnasium.wrappers.NormalizeObservation, "normalize_observations"),
        (functools.partial(gymnasium.wrappers.NormalizeReward, gamma=0.9), "normalize_rewards"),
        (type("Mine", (gymnasium.wrappers.NormalizeReward,), {}), "normalize_rewards"),
    ],
)
def test_running_statistics_in_wrappers_are_refused_before_anything_is_made(wrapper, parameter):
    with pytest.raises(errors.ConfigError, match=rf"set the agent's {parameter} = True"):
        making.environment_factory("CartPole-v1", wrappers=[wrapper])


def _normalized_cartpole():
    env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))
    return gymnasium.wrappers.TimeLimit(env, 5)


@pytest.mark.parametrize(
    "source, wrappers",
    [
        (_normalized_cartpole, []),
        ("CartPole-v1", [lambda env: gymnasium.wrappers.NormalizeObservation(env)]),
    ],
)
def test_running_statistics_inside_an_environment_are_refused_too(source, wrappers):
    factory = making.environment_factory(source, wrappers=wrappers)
    with pytest.raises(errors.ConfigError, match="NormalizeObservation keeps running statistics"):
        factory()


def test_the_tf_agents_loader_refuses_running_statistics():
    with pytest.raises(errors.ConfigError, match="normalize_observations = True"):
        suite_gymnasium.wrap_env(_normalized_cartpole())
    with pytest.raises(errors.ConfigError, match="normalize_rewards = True"):
        suite_gymnasium.load("CartPole-v1", gym_env_wrappers=["NormalizeReward"])


def test_a_native_vector_environment_may_not_hide_running_statistics():
    gymnasium.register(
        "HiddenStatistics-v0",
        entry_point="gymnasium.envs.classic_control:CartPoleEnv",
        vector_entry_point=lambda **kwargs: gymnasium.wrappers.vector.NormalizeObservation(
            gymnasium.make_vec("CartPole-v1", vectorization_mode="vector_entry_point", **kwargs)
        ),
    )
    try:
        with pytest.raises(errors.ConfigError, match="NormalizeObservation keeps running"):
            gymnasium_environment.GymnasiumEnvironment("HiddenStatistics-v0", 2)
    finally:
        del gymnasium.registry["HiddenStatistics-v0"]


def test_wrappers_of_ones_own_with_the_name_but_without_statistics_pass():
    class NormalizeObservation(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return observation / 10.0

    making.environment_factory("CartPole-v1", wrappers=[NormalizeObservation])().close()


def test_a_wrapper_must_return_an_environment():
    factory = making.environment_factory("CartPole-v1", wrappers=[lambda env: None])

    with pytest.raises(errors.ConfigError, match="lambda.*NoneType, not a gymnasium.Env"):
        factory()


def test_gymnasiums_own_warnings_are_silent_and_others_are_not(recwarn):
    with making.quiet_gymnasium():
        gymnasium.spaces.Box(0.0, 0.1, (1,), dtype="float16")  # Warns about lowered precision.
        gymnasium.register("CountingEnv-v0", "tests.counting_environment:CountingEnv")
    assert not recwarn.list

    gymnasium.register("CountingEnv-v0", "tests.counting_environment:CountingEnv")
    assert len(recwarn.list) == 1
