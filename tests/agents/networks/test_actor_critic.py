"""The actor-critic network and its policies: shapes, memory, info, export."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.agents import unroll_policy
from actor_learner.agents.networks import actor_critic_network
from actor_learner.inference import graph
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
FIRST, MID, LAST = 0, 1, 2
VECTOR = B([3], tf.float32, -1, 1)
DICT = {"camera": B([12, 12, 3], tf.uint8, 0, 255), "choice": B([2], tf.int64, 0, 3)}
DISCRETE = B([], tf.int64, 0, 2)
CONTINUOUS = B([2], tf.float32, [-2.0, -1.0], [2.0, 1.0])
MIXED = {"turn": CONTINUOUS, "press": B([2], tf.int32, 0, [1, 3])}
MEMORY = {"lstm_size": 5, "share_torso": True}


def make_network(observation=VECTOR, action=DISCRETE, **kwargs):
    network = actor_critic_network.ActorCriticNetwork(
        observation, action, **{"fc_layer_params": (4,), **kwargs}
    )
    network.create_variables()
    for variable in network.trainable_variables:  # Away from the small initial policy.
        variable.assign(tf.random.stateless_normal(variable.shape, [1, len(variable.shape)]) * 0.7)
    return network


def random_like(spec, *outer):
    return tensor_spec.sample_spec_nest(spec, seed=1, outer_dims=outer)


@pytest.mark.parametrize("observation", [VECTOR, DICT], ids=["vector", "dict"])
@pytest.mark.parametrize("options", [{}, {"share_torso": True}, MEMORY], ids=str)
def test_steps_at_once_equal_steps_one_by_one(observation, options):
    network = make_network(observation, MIXED, **options)
    batch, steps = 3, 6
    observations = random_like(observation, batch, steps)
    step_type = np.array(
        [
            [MID, MID, LAST, FIRST, MID, MID],
            [FIRST, MID, MID, MID, MID, LAST],
            [LAST, FIRST, LAST, FIRST, LAST, FIRST],
        ],
        np.int32,
    )
    start = tf.nest.map_structure(
        lambda spec: tf.random.normal([batch, *spec.shape]), network.state_spec
    )
    at_once, end = network(observations, step_type=step_type, network_state=start)
    assert at_once.parameters.shape == [batch, steps, network.distribution.num_parameters]
    assert at_once.value.shape == [batch, steps]
    state = start
    for t in range(steps):
        now = tf.nest.map_structure(lambda leaf, t=t: leaf[:, t], observations)
        acted, _ = network.act(now, step_type=step_type[:, t], network_state=state)
        one, state = network(now, step_type=step_type[:, t], network_state=state)
        np.testing.assert_allclose(acted, one.parameters, atol=1e-6)
        np.testing.assert_allclose(at_once.parameters[:, t], one.parameters, atol=1e-5)
        np.testing.assert_allclose(at_once.value[:, t], one.value, atol=1e-5)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), end, state)


def test_an_episode_that_begins_inside_forgets_what_was_before():
    tf.keras.utils.set_random_seed(0)
    network = make_network(**MEMORY)
    observations = np.random.default_rng(0).uniform(-1, 1, (2, 4, 3)).astype(np.float32)
    step_type = np.array([[MID, LAST, FIRST, MID]] * 2, np.int32)
    before, _ = network(observations, step_type=step_type)
    observations[:, :2] += 1.0
    after, _ = network(observations, step_type=step_type)
    assert np.abs(before.value - after.value)[:, :2].min() > 1e-3
    np.testing.assert_allclose(before.value[:, 2:], after.value[:, 2:], atol=1e-6)


def test_a_torso_of_its_own_keeps_the_value_from_moving_the_policy():
    for share_torso in (False, True):
        network = make_network(share_torso=share_torso)
        with tf.GradientTape() as tape:
            value = network(random_like(VECTOR, 8))[0].value
            loss = tf.reduce_sum(tf.square(value))
        moved = [
            variable.name
            for variable, gradient in zip(
                network.trainable_variables, tape.gradient(loss, network.trainable_variables)
            )
            if gradient is not None and np.any(gradient)
        ]
        assert any("/policy/" in name for name in moved) == share_torso


def test_a_memory_needs_a_shared_torso():
    with pytest.raises(errors.ConfigError, match="share_torso = True"):
        make_network(lstm_size=4)


def test_the_initial_policy_is_nearly_uniform_and_has_the_stddev_asked_for():
    network = actor_critic_network.ActorCriticNetwork(VECTOR, MIXED, initial_stddev=0.3)
    network.create_variables()
    parameters = network(random_like(VECTOR, 16))[0].parameters
    assert np.abs(parameters[:, :-2]).max() < 0.1
    np.testing.assert_allclose(parameters[:, -2:], np.log(0.3), rtol=1e-6)


class Doubling(tf.Module):
    """A normaliser that multiplies by a variable."""

    def __init__(self):
        super().__init__()
        self.factor = tf.Variable(2.0, trainable=False)

    def normalize(self, observation):
        return observation * self.factor


def test_a_normalizer_is_part_of_the_network_and_its_policies():
    normalizer = Doubling()
    network = make_network(observation_normalizer=normalizer)
    observation = random_like(VECTOR, 4)
    doubled = network(observation)[0]
    normalizer.factor.assign(1.0)
    np.testing.assert_allclose(network(observation * 2.0)[0].value, doubled.value, atol=1e-6)
    np.testing.assert_allclose(network.act(observation * 2.0)[0], doubled.parameters, atol=1e-6)
    policy = unroll_policy.ActorCriticPolicy(ts.time_step_spec(VECTOR), DISCRETE, network)
    assert any(variable is normalizer.factor for variable in policy.variables())
    assert not any(variable is normalizer.factor for variable in network.trainable_variables)


def make_time_step(step_type, seed=0):
    lanes = len(step_type)
    observation = np.random.default_rng(seed).normal(size=(lanes, 3)).astype(np.float32)
    return ts.TimeStep(
        np.array(step_type, np.int32),
        np.zeros(lanes, np.float32),
        np.ones(lanes, np.float32),
        observation,
    )


@pytest.mark.parametrize("options", [{}, MEMORY], ids=["feed-forward", "lstm"])
@pytest.mark.parametrize("action", [DISCRETE, MIXED], ids=["discrete", "mixed"])
def test_the_collect_policy_says_what_the_learner_must_know(action, options):
    network = make_network(action=action, **options)
    policy = unroll_policy.UnrollCollectPolicy(ts.time_step_spec(VECTOR), action, network)
    lanes = 4
    stream = graph.GraphInference(policy, lanes)
    types = [[FIRST] * lanes, [MID, LAST, MID, MID], [MID, FIRST, MID, MID]]
    steps, responses = [], []
    for number, step_type in enumerate(types):
        steps.append(make_time_step(step_type, seed=number))
        responses.append(stream.act(steps[-1]))
    observation = np.stack([step.observation for step in steps], axis=1)
    actions = tf.nest.map_structure(
        lambda *leaves: np.stack(leaves, axis=1), *[response.action for response in responses]
    )
    infos = [dict(response.policy_info) for response in responses]
    states = [info.pop(experience.STATE, ()) for info in infos]
    info = tf.nest.map_structure(lambda *leaves: np.stack(leaves, axis=1), *infos)
    if options:
        assert not np.any(states[0][0]) and not np.any(states[0][1])
        assert not np.any(states[2][0][1]) and np.any(states[2][0][0])  # Lane 1 begins anew.
    else:
        assert states == [(), (), ()] and experience.STATE not in policy.info_spec
    assert (unroll_policy.RAW_ACTION in info) == (action is MIXED)
    # The learner, from row 1 and its state on, finds the probabilities that the actor had.
    outputs, _ = network(
        observation[:, 1:], step_type=np.stack(types, axis=1)[:, 1:], network_state=states[1]
    )
    trajectory = trajectory_lib.Trajectory(
        None,
        None,
        tf.nest.map_structure(lambda leaf: leaf[:, 1:], actions),
        tf.nest.map_structure(lambda leaf: leaf[:, 1:], info),
        None,
        None,
        None,
    )
    found = unroll_policy.log_probability(network, outputs.parameters, trajectory)
    np.testing.assert_allclose(found, info[experience.LOG_PROBABILITY][:, 1:], atol=1e-5)


def test_the_policy_draws_from_the_networks_distribution():
    network = make_network()
    policy = unroll_policy.ActorCriticPolicy(ts.time_step_spec(VECTOR), DISCRETE, network)
    lanes = 4000
    step = make_time_step([MID] * lanes)
    step = step._replace(observation=np.repeat(step.observation[:1], lanes, axis=0))
    drawn = np.bincount(policy.action(step).action, minlength=3) / lanes
    expected = tf.nn.softmax(network(step.observation)[0].parameters)[0]
    np.testing.assert_allclose(drawn, expected, atol=0.05)


def assert_close(found, expected):
    """Graphs and single operations may round differently, depending on the processor."""
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)


@pytest.mark.parametrize(
    "action, options", [(DISCRETE, {}), (MIXED, MEMORY)], ids=["discrete", "mixed with memory"]
)
def test_policies_can_be_exported_and_the_loaded_ones_act_alike(tmp_path, action, options):
    network = make_network(action=action, **options)
    spec = ts.time_step_spec(VECTOR)
    plain = unroll_policy.ActorCriticPolicy(spec, action, network)
    greedy = greedy_policy.GreedyPolicy(plain)
    collect = unroll_policy.UnrollCollectPolicy(spec, action, network)
    step = tf.nest.map_structure(tf.constant, make_time_step([FIRST, MID]))
    for name, policy in (("greedy", greedy), ("collect", collect)):
        policy_saver.PolicySaver(policy).save(str(tmp_path / name))
        loaded = tf.saved_model.load(str(tmp_path / name))
        state = tf.nest.map_structure(lambda leaf: leaf + 0.5, policy.get_initial_state(2))
        found = loaded.action(step, state)
        expected = policy.action(step, state)
        assert_close(found.state, expected.state)
        if name == "greedy":
            assert_close(found.action, expected.action)
            mode = network.distribution.mode(
                network.act(step.observation, step.step_type, state)[0]
            )
            assert_close(found.action, mode)
        else:
            assert found.info[experience.LOG_PROBABILITY].shape == [2]
