"""A trained policy answers plain observations, whatever agent it comes from."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from actor_learner import (
    GymnasiumEnvironment,
    c51,
    dqn,
    experiment,
    impala,
    load_policy,
    ppo,
    r2d2,
    sac,
)
from actor_learner.environments import memory
from actor_learner.inference import graph
from actor_learner.learning import policy_export
from actor_learner.support import errors

CARTPOLE = functools.partial(GymnasiumEnvironment, "CartPole-v1", num_envs=2)
PENDULUM = functools.partial(GymnasiumEnvironment, "Pendulum-v1", num_envs=2)
MEMORY = functools.partial(GymnasiumEnvironment, memory.ENV_ID, num_envs=2)

AGENTS = {
    "normalized dqn": (CARTPOLE, functools.partial(dqn, normalize_observations=True)),
    "c51": (CARTPOLE, functools.partial(c51, min_q_value=0, max_q_value=10)),
    "ppo": (CARTPOLE, ppo),
    "impala with memory": (CARTPOLE, functools.partial(impala, lstm_size=8)),
    "sac": (PENDULUM, sac),
    "r2d2": (MEMORY, r2d2),
}


def exported(environment, agent, directory):
    env = environment(seed=0)
    counters = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2)]
    algorithm = experiment.Experiment(environment, agent).make_algorithm(env, *counters)
    algorithm.agent.initialize()
    policy_export.export_policies(str(directory), algorithm.agent, counters[0])
    return env, experiment.greedy(algorithm.agent.policy)


@pytest.mark.parametrize("name", AGENTS)
def test_it_acts_as_the_policy_that_was_exported_does_in_training(name, tmp_path):
    env, original = exported(*AGENTS[name], tmp_path)
    loaded = load_policy(tmp_path / "greedy_policy")
    stream = graph.GraphInference(original, 2)
    step = env.reset()
    for _ in range(30):  # Past the ends of episodes.
        expected = stream.act(step).action
        action = loaded.act(step.observation, is_first=step.is_first())
        np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
        step = env.step(expected)


@pytest.fixture(scope="module")
def cartpole_policy(tmp_path_factory):
    directory = tmp_path_factory.mktemp("policies")
    exported(CARTPOLE, dqn, directory)
    return load_policy(directory / "greedy_policy")


def test_one_observation_gives_one_action_and_a_batch_a_batch(cartpole_policy):
    policy = cartpole_policy
    one = policy.act([0.1, 0.2, 0.3, 0.4])
    assert one.shape == () and one in (0, 1)
    many = policy.act(np.full([5, 4], 0.1))  # float64, as Gymnasium's own arithmetic gives.
    assert many.shape == (5,)


def test_memory_is_kept_between_calls_and_forgotten_on_reset(tmp_path):
    exported(*AGENTS["r2d2"], tmp_path)
    policy = load_policy(tmp_path / "greedy_policy")
    zeros = np.zeros(policy.observation_spec.shape, policy.observation_spec.dtype)
    policy.act(zeros)
    before = tf.nest.map_structure(np.array, policy._state)
    policy.act(zeros + 1)
    changed = [
        not np.array_equal(a, b)
        for a, b in zip(tf.nest.flatten(before), tf.nest.flatten(policy._state))
    ]
    assert any(changed)
    with pytest.raises(errors.SpecMismatchError, match="a batch of 3 .* follows one of 1"):
        policy.act(np.stack([zeros] * 3))
    policy.reset()
    policy.act(zeros)
    for a, b in zip(tf.nest.flatten(before), tf.nest.flatten(policy._state)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "observation, wrong",
    [
        ([0.0, 0.0], r"shape \(2,\) instead of \(4,\)"),
        (np.zeros([1, 2, 4]), r"shape \(1, 2, 4\) instead of"),
        (np.zeros([4], complex), "complex128 instead of float32"),
        (["a", "b", "c", "d"], "instead of float32"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_in_words(observation, wrong, cartpole_policy):
    with pytest.raises(errors.SpecMismatchError, match=wrong):
        cartpole_policy.act(observation)


def test_a_run_without_a_policy_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(errors.ConfigError, match="has no policy yet"):
        load_policy(tmp_path)
    with pytest.raises(errors.ConfigError, match="has no last policy yet"):
        load_policy(tmp_path, "last")
    with pytest.raises(errors.ConfigError, match="'first' is not a policy of a run"):
        load_policy(tmp_path, "first")
    with pytest.raises(errors.ConfigError, match="does not exist"):
        load_policy(tmp_path / "nowhere")
