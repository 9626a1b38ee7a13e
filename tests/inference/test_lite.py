"""TFLite gives what TensorFlow gives, for every agent we ship and every kind of observation."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import graph, lite, traced_policy
from tests.inference import comparing, policies


@pytest.mark.parametrize("name", policies.AGENTS)
def test_an_agent_acts_alike_over_a_hundred_steps(name, monkeypatch):
    agent = policies.agent_of(name, lanes=comparing.LANES)
    for policy in (agent.collect_policy, policies.greedy(agent.policy)):
        comparing.assert_same(policy, policies.OBSERVATIONS["vector"], monkeypatch, steps=100)


CASES = [("dqn", observation) for observation in policies.OBSERVATIONS] + [
    ("ppo normalized", "float64"), ("ppo normalized", "dict"), ("r2d2", "image"),
    ("r2d2", "discrete"), ("impala", "masked"), ("sac discrete", "masked"),
    ("r2d2 normalized", "tuple"), ("sac", "stacked frames"),
]  # fmt: skip


@pytest.mark.parametrize("name, observation", CASES)
def test_every_kind_of_observation_is_taken_in_alike(name, observation, monkeypatch):
    agent = policies.agent_of(name, observation, lanes=comparing.LANES)
    observations = policies.OBSERVATIONS[observation]
    # Long enough for weights to become constants.
    comparing.assert_same(agent.collect_policy, observations, monkeypatch, steps=20)


OBSERVATION = policies.OBSERVATIONS["vector"]


def test_only_the_observation_of_a_feed_forward_policy_is_read():
    stream = lite.LiteInference(policies.agent_of("dqn").collect_policy, 2, seed=0)
    without_values = ts.TimeStep(None, None, None, np.ones((2, 4), np.float32))
    assert stream.act(without_values).action.shape == (2,)


def test_an_observation_of_another_shape_is_refused():
    stream = lite.LiteInference(policies.agent_of("dqn").policy, 2, seed=0)
    with pytest.raises(ValueError, match="[Dd]imension"):
        stream.act(ts.TimeStep(None, None, None, np.ones((3, 4), np.float32)))


def test_reset_forgets_the_state_of_all_lanes():
    stream = lite.LiteInference(policies.agent_of("r2d2").policy, 2, seed=0)
    step = policies.time_step(np.random.default_rng(0), OBSERVATION, 2)
    stream.act(step)
    assert any(np.any(s) for s in tf.nest.flatten(stream.act(step).previous_state))
    stream.reset()
    assert not any(np.any(s) for s in tf.nest.flatten(stream.act(step).previous_state))


def test_actions_belong_to_the_caller():
    stream = lite.LiteInference(policies.agent_of("sac").collect_policy, 2, seed=0)
    step = policies.time_step(np.random.default_rng(0), OBSERVATION, 2)
    first = stream.act(step).action
    kept = first.copy()
    second = stream.act(step).action
    np.testing.assert_array_equal(first, kept)
    assert (first != second).any()


def test_the_answer_names_policy_version_and_epoch():
    policy = policies.agent_of("dqn").policy
    for stream in (lite.LiteInference(policy, 1, seed=0), graph.GraphInference(policy, 1)):
        step = policies.time_step(np.random.default_rng(0), OBSERVATION, 1)
        assert stream.act(step)[-3:] == (policy.name, -1, 0)
        stream.refresh(7, 2)
        assert stream.act(step)[-3:] == (policy.name, 7, 2)


def test_conversion_says_nothing_on_the_terminal(capfd):
    policy = policies.agent_of("ppo memory").collect_policy
    traced = traced_policy.TracedPolicy(policy, 2)
    capfd.readouterr()
    lite.LiteInference(policy, 2, seed=0, traced=traced)
    assert capfd.readouterr() == ("", "")
