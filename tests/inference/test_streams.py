"""How a policy is run: by TFLite where that is possible, and what is said where it is not."""

import logging

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents.ddpg import actor_network, critic_network, ddpg_agent
from tf_agents.policies import (
    py_tf_eager_policy,
    random_py_policy,
    random_tf_policy,
    tf_policy,
)
from tf_agents.specs import array_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import graph, lite, python, streams
from actor_learner.support import errors
from tests.inference import policies

OBSERVATION = policies.OBSERVATIONS["vector"]
TIME_STEP = ts.time_step_spec(OBSERVATION)


def step(lanes=2):
    return policies.time_step(np.random.default_rng(0), OBSERVATION, lanes)


class PythonInside(tf_policy.TFPolicy):
    """Chooses an action by Python code, called from the graph."""

    def __init__(self):
        super().__init__(TIME_STEP, policies.DISCRETE, name="python_inside")

    def _variables(self):
        return []

    def _distribution(self, time_step, policy_state):
        raise NotImplementedError

    def _action(self, time_step, policy_state, seed):
        action = tf.numpy_function(lambda x: (x[:, 0] > 0).astype(np.int64), [time_step.observation], tf.int64)  # fmt: skip  # noqa: E501
        return policy_step.PolicyStep(tf.ensure_shape(action, [time_step.step_type.shape[0]]))


class Sorting(PythonInside):
    """Uses an operation that TFLite does not have."""

    def _action(self, time_step, policy_state, seed):
        row = tf.linalg.matrix_rank(tf.linalg.diag(time_step.observation))
        return policy_step.PolicyStep(tf.cast(row > 3, tf.int64))


class Branching(PythonInside):
    """Branches in its graph."""

    def _action(self, time_step, policy_state, seed):
        lanes = time_step.step_type.shape[0]
        action = tf.cond(
            time_step.observation[0, 0] > 0,
            lambda: tf.zeros([lanes], tf.int64),
            lambda: tf.ones([lanes], tf.int64),
        )
        return policy_step.PolicyStep(action)


def noise_in_a_variable():
    """TF-Agents' DDPG keeps its Ornstein-Uhlenbeck noise in a variable that acting changes."""
    action = policies.CONTINUOUS
    return ddpg_agent.DdpgAgent(
        TIME_STEP,
        action,
        actor_network.ActorNetwork(OBSERVATION, action, fc_layer_params=(4,)),
        critic_network.CriticNetwork((OBSERVATION, action), joint_fc_layer_params=(4,)),
        actor_optimizer=None,
        critic_optimizer=None,
    ).collect_policy


UNCONVERTIBLE = {
    "calls Python code": PythonInside,
    "TFLite has no equivalent of": Sorting,
    "branches or loops": Branching,
    "changes a variable while it acts": noise_in_a_variable,
}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(streams, "_said", set())


@pytest.mark.parametrize("reason", UNCONVERTIBLE)
def test_a_policy_that_cannot_be_converted_runs_as_a_graph_and_the_log_says_why_once(
    reason, caplog, capfd
):
    policy = UNCONVERTIBLE[reason]()
    with caplog.at_level(logging.WARNING, logger="absl"):
        first = streams.stream_for(policy, 2, batched=True)
        streams.stream_for(policy, 2, batched=True)
    assert isinstance(first, graph.GraphInference)
    (record,) = [each for each in caplog.records if "TFLite cannot" in each.message]
    assert reason in record.message and policy.name in record.message
    assert "loc(" not in capfd.readouterr().err  # Of the converter's own report.
    action = first.act(step()).action
    assert action.shape[0] == 2


@pytest.mark.parametrize("reason", UNCONVERTIBLE)
def test_asking_for_lite_where_it_is_impossible_is_an_error_that_says_why(reason):
    with pytest.raises(errors.ConfigError, match=f"{reason}.*Use 'auto' or 'graph'"):
        streams.stream_for(UNCONVERTIBLE[reason](), 2, batched=True, inference="lite")


def test_on_a_cpu_lite_is_the_default_and_graph_is_what_was_asked_for():
    policy = policies.agent_of("dqn").policy
    assert isinstance(streams.stream_for(policy, 2, batched=True), lite.LiteInference)
    asked = streams.stream_for(policy, 2, batched=True, inference="lite")
    assert isinstance(asked, lite.LiteInference)
    asked = streams.stream_for(policy, 2, batched=True, inference="graph")
    assert isinstance(asked, graph.GraphInference)


def test_where_there_is_a_gpu_the_graph_is_the_default(monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [f"/{kind}:0"])
    policy = policies.agent_of("dqn").policy
    assert isinstance(streams.stream_for(policy, 2, batched=True), graph.GraphInference)
    asked = streams.stream_for(policy, 2, batched=True, inference="lite")
    assert isinstance(asked, lite.LiteInference)


def test_an_unknown_way_is_refused():
    with pytest.raises(errors.ConfigError, match="'auto', 'lite' or 'graph', got 'tflite'"):
        streams.stream_for(policies.agent_of("dqn").policy, 2, True, inference="tflite")


def test_an_eager_py_policy_is_converted_instead():
    agent = policies.agent_of("dqn")
    wrapped = py_tf_eager_policy.PyTFEagerPolicy(agent.policy, use_tf_function=True)
    stream = streams.stream_for(wrapped, num_lanes=1, batched=False)
    assert isinstance(stream, lite.LiteInference)
    assert stream.policy is agent.policy


def test_a_random_policy_is_not_converted():
    policy = random_tf_policy.RandomTFPolicy(TIME_STEP, policies.ALL_ACTIONS)
    stream = streams.stream_for(policy, 500, batched=True)
    assert isinstance(stream, python.RandomInference)
    drawn = stream.act(step(500)).action
    tf.nest.assert_same_structure(drawn, policies.ALL_ACTIONS)
    assert np.unique(drawn["choice"]).tolist() == [0, 1, 2]
    assert [drawn["choices"][:, i].min() for i in range(3)] == [0, 0, 1]
    assert [drawn["choices"][:, i].max() for i in range(3)] == [1, 2, 3]
    assert (np.abs(drawn["numbers"]) <= [2.0, 1.0]).all() and drawn["numbers"].dtype == np.float32


def test_a_random_policy_that_says_how_likely_its_actions_are_is_run_itself():
    policy = random_tf_policy.RandomTFPolicy(
        TIME_STEP, policies.DISCRETE, emit_log_probability=True
    )
    answer = streams.stream_for(policy, 2, batched=True).act(step())
    np.testing.assert_allclose(answer.policy_info.log_probability, np.log([1 / 3] * 2), rtol=1e-5)


def test_python_policies_and_streams_of_users_cannot_be_lite():
    policy = random_py_policy.RandomPyPolicy(
        ts.time_step_spec(array_spec.ArraySpec((2,), np.float32)),
        array_spec.BoundedArraySpec((), np.int64, 0, 4),
    )
    with pytest.raises(errors.ConfigError, match="RandomPyPolicy is not a TF policy"):
        streams.stream_for(policy, 2, batched=True, inference="lite")


def test_without_a_seed_actions_follow_tensorflows_and_two_streams_differ():
    policy = policies.agent_of("sac").collect_policy

    def actions():
        tf.random.set_seed(5)
        made = [streams.stream_for(policy, 2, batched=True) for _ in range(2)]
        return [stream.act(step()).action for stream in made]

    first, second = actions(), actions()
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


def test_without_any_seed_no_two_streams_are_alike():
    policy = policies.agent_of("sac").collect_policy
    tf.random.set_seed(None)
    first, second = (streams.stream_for(policy, 2, batched=True).act(step()) for _ in range(2))
    assert (first.action != second.action).any()  # Two that are clipped to a bound are the same.


class TiedToItsLanes(PythonInside):
    """Draws as many numbers as it has lanes for each of its lanes, and knows no others."""

    lanes = 2

    def _action(self, time_step, policy_state, seed):
        if time_step.step_type.shape[0] != self.lanes:
            raise ValueError(f"made for {self.lanes} lanes")
        drawn = tf.random.normal([self.lanes, self.lanes])
        return policy_step.PolicyStep(tf.argmax(drawn, axis=1))


class DrawsMoreForThree(PythonInside):
    """Draws another number of times for another number of lanes."""

    def _action(self, time_step, policy_state, seed):
        lanes = time_step.step_type.shape[0]
        drawn = sum(tf.random.normal([lanes, 2]) for _ in range(lanes))
        return policy_step.PolicyStep(tf.argmax(drawn, axis=1))


class DrawsHalves(PythonInside):
    """Draws numbers of half the usual precision."""

    def _action(self, time_step, policy_state, seed):
        drawn = tf.random.uniform([time_step.step_type.shape[0]], dtype=tf.float16)
        return policy_step.PolicyStep(tf.cast(drawn > 0.5, tf.int64))


@pytest.mark.parametrize(
    "make, reason",
    [
        (TiedToItsLanes, r"cannot be traced for 3 lanes \(.*made for 2 lanes"),
        (DrawsMoreForThree, "for 3 lanes it draws other numbers"),
        (DrawsHalves, "draws random numbers of float16"),
    ],
)
def test_what_cannot_be_drawn_for_each_lane_is_left_to_the_graph(make, reason):
    stream = streams.stream_for(make(), 2, batched=True)
    assert isinstance(stream, graph.GraphInference)
    assert stream.act(step()).action.shape == (2,)
    with pytest.raises(errors.ConfigError, match=f"(?s){reason}"):
        streams.stream_for(make(), 2, batched=True, inference="lite")


def test_groups_of_a_random_policy_draw_numbers_of_their_own():
    policy = random_tf_policy.RandomTFPolicy(TIME_STEP, policies.CONTINUOUS)

    def action(first_lane):
        stream = streams.stream_for(policy, 2, batched=True, seed=3, first_lane=first_lane)
        return stream.act(step()).action

    np.testing.assert_array_equal(action(0), action(0))
    assert (action(0) != action(2)).all()
