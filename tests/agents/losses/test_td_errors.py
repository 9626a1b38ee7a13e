"""TD errors per item and importance weights, against TF-Agents' own losses and NumPy references."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.categorical_dqn import categorical_dqn_agent
from tf_agents.agents.ddpg import ddpg_agent
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.sac import sac_agent
from tf_agents.agents.td3 import td3_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.agents import algorithm, c51, ddpg, dqn, sac, scaled_agent, td3

B = tensor_spec.BoundedTensorSpec
SIZE = 6
SMALL = {"actor_fc_layer_params": (8,), "critic_fc_layer_params": (8,)}
BUILDERS = {
    "dqn": (dqn.dqn, {"fc_layer_params": (8,), "huber_loss": False}),
    "c51": (c51.c51, {"fc_layer_params": (8,), "min_q_value": -2.0, "max_q_value": 2.0}),
    "sac": (sac.sac, SMALL),
    "td3": (td3.td3, {**SMALL, "target_policy_noise": 0.0}),
    "ddpg": (ddpg.ddpg, SMALL),
}


def build(name, actions=2):
    discrete = name in ("dqn", "c51")
    action = B([], tf.int64, 0, 2) if discrete else B([actions], tf.float32, -2.0, 2.0)
    world = algorithm.World(
        ts.time_step_spec(B([3], tf.float32, -1, 1)),
        action,
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    builder, options = BUILDERS[name]
    tf.keras.utils.set_random_seed(0)
    built = builder(world, **options)
    built.agent.initialize()
    return built


def inner(agent):
    """The agent of TF-Agents' class, for continuous actions the one that works in [-1, 1]."""
    return agent.inner if isinstance(agent, scaled_agent.ScaledAgent) else agent


def make_batch(agent, seed=1):
    generator = np.random.default_rng(seed)
    sampled = tensor_spec.sample_spec_nest(agent.collect_data_spec, seed=seed, outer_dims=(SIZE, 2))
    discount = generator.choice([0.0, 1.0], size=(SIZE, 2)).astype(np.float32)
    return sampled._replace(
        reward=tf.constant(generator.normal(size=(SIZE, 2)), tf.float32),
        discount=tf.constant(discount),
        step_type=tf.ones([SIZE, 2], tf.int32),
        next_step_type=tf.ones([SIZE, 2], tf.int32),
    )


def loss_of(agent_class, agent, batch, weights=None):
    """The loss of a batch by the methods of `agent_class`, the same random numbers each time."""
    tf.random.set_seed(5)
    if agent_class._loss is not tf_agent.TFAgent._loss:
        options = {"gamma": 0.99} if isinstance(agent, dqn_agent.DqnAgent) else {}
        return float(agent_class._loss(agent, batch, weights=weights, **options).loss)
    time_steps, policy_steps, next_time_steps = agent._as_transition(batch)
    critic = agent_class.critic_loss(
        agent, time_steps, policy_steps.action, next_time_steps, weights=weights
    )
    return float(critic + agent_class.actor_loss(agent, time_steps, weights=weights))


def q_of(network, observation, action):
    return network((observation, action), training=False)[0].numpy()


def reference_errors(name, agent, batch):
    """|target - prediction| of each item before the train step, by NumPy."""
    now, then = batch.observation[:, 0], batch.observation[:, 1]
    reward, discount = batch.reward[:, 0].numpy(), 0.99 * batch.discount[:, 0].numpy()
    action = batch.action[:, 0]
    if name == "dqn":
        best = np.argmax(agent._q_network(then)[0].numpy(), axis=-1)
        after = agent._target_q_network(then)[0].numpy()[np.arange(SIZE), best]
        before = agent._q_network(now)[0].numpy()[np.arange(SIZE), action.numpy()]
        return np.abs(reward + discount * after - before)
    assert name == "ddpg"
    agent, action = inner(agent), action / 2.0  # The bounds are -2 and 2.
    target_action = agent._target_actor_network(then)[0]
    after = q_of(agent._target_critic_network, then, target_action)
    return np.abs(reward + discount * after - q_of(agent._critic_network, now, action))


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def c51_divergences(agent, batch):
    """The divergence of the projected target distribution from the prediction, in Python loops."""
    support = np.linspace(-2.0, 2.0, 51)
    width = support[1] - support[0]
    then = softmax(agent._target_q_network(batch.observation[:, 1])[0].numpy())
    now = softmax(agent._q_network(batch.observation[:, 0])[0].numpy())
    divergences = []
    for b in range(SIZE):
        best = int(np.argmax((then[b] * support).sum(axis=-1)))
        target = np.zeros(51)
        for atom, mass in zip(support, then[b, best]):
            value = batch.reward[b, 0] + 0.99 * batch.discount[b, 0] * atom
            place = (np.clip(value, -2.0, 2.0) + 2.0) / width
            low = int(np.floor(place))
            high = min(low + 1, 50)
            target[low] += mass * (1 - (place - low))
            target[high] += mass * (place - low)
        predicted = now[b, int(batch.action[b, 0])]
        kept = target > 0
        divergences.append(np.sum(target[kept] * np.log(target[kept] / predicted[kept])))
    return np.array(divergences)


@pytest.mark.parametrize("name", ["dqn", "ddpg"])
def test_priorities_are_the_absolute_td_errors_of_a_numpy_reference(name):
    built = build(name)
    batch = make_batch(built.agent)
    expected = reference_errors(name, built.agent, batch)
    priorities = built.priorities(built.agent.train(batch)).numpy()
    np.testing.assert_allclose(priorities, expected, atol=1e-5)
    assert priorities.std() > 0.01


def test_priorities_of_c51_are_the_divergences_of_a_numpy_reference():
    built = build("c51")
    batch = make_batch(built.agent)
    expected = c51_divergences(built.agent, batch)
    priorities = built.priorities(built.agent.train(batch)).numpy()
    np.testing.assert_allclose(priorities, expected, atol=1e-5)


def test_priorities_of_td3_are_the_mean_error_of_both_critics():
    built = build("td3")
    agent, batch = built.agent, make_batch(built.agent)
    now, then = batch.observation[:, 0], batch.observation[:, 1]
    target_action = agent.inner._target_actor_network(then)[0]
    after = np.minimum(
        q_of(agent.inner._target_critic_network_1, then, target_action),
        q_of(agent.inner._target_critic_network_2, then, target_action),
    )
    target = batch.reward[:, 0] + 0.99 * batch.discount[:, 0] * after
    critics = (agent.inner._critic_network_1, agent.inner._critic_network_2)
    action = batch.action[:, 0] / 2.0
    errors = [np.abs(target - q_of(critic, now, action)) for critic in critics]
    priorities = built.priorities(agent.train(batch)).numpy()
    np.testing.assert_allclose(priorities, np.mean(errors, axis=0), atol=1e-5)


def test_priorities_of_sac_agree_with_its_critic_loss():
    # Its next actions are random, so the errors are held against the loss of the same forward pass.
    built = build("sac")
    batch = make_batch(built.agent)._replace(discount=tf.zeros([SIZE, 2]))
    now, action = batch.observation[:, 0], batch.action[:, 0] / 2.0
    critics = (built.agent.inner._critic_network_1, built.agent.inner._critic_network_2)
    errors = [np.abs(batch.reward[:, 0] - q_of(critic, now, action)) for critic in critics]
    info = built.agent.train(batch)
    np.testing.assert_allclose(built.priorities(info), np.mean(errors, axis=0), atol=1e-5)
    expected = 0.5 * np.mean(np.square(errors[0]) + np.square(errors[1]))
    np.testing.assert_allclose(info.extra.critic_loss, expected, rtol=1e-5)


THEIRS = {
    "dqn": dqn_agent.DdqnAgent,
    "c51": categorical_dqn_agent.CategoricalDqnAgent,
    "sac": sac_agent.SacAgent,
    "td3": td3_agent.Td3Agent,
    "ddpg": ddpg_agent.DdpgAgent,
}


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_the_loss_without_weights_is_tf_agents_own(name):
    """The loss of their class, called on the same agent with the same random numbers."""
    agent = inner(build(name).agent)
    batch = make_batch(agent)
    ours, theirs = (loss_of(cls, agent, batch) for cls in (type(agent), THEIRS[name]))
    assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", ["dqn", "c51"])
def test_training_reports_that_loss_too(name):
    agent = build(name).agent
    batch = make_batch(agent)
    expected = loss_of(THEIRS[name], agent, batch)
    assert float(agent.train(batch).loss) == pytest.approx(expected, rel=1e-5)


WEIGHTED = [("c51", 1), ("dqn", 1), ("sac", 2), ("td3", 2), ("ddpg", 1), ("ddpg", 2)]


@pytest.mark.parametrize("name, actions", WEIGHTED)
def test_weights_scale_the_loss_of_each_item_alone(name, actions):
    agent = inner(build(name, actions).agent)
    batch = make_batch(agent)

    def loss(weights, batch=batch):
        weights = None if weights is None else tf.constant(weights, tf.float32)
        return loss_of(type(agent), agent, batch, weights)

    # The loss is linear in the weights: those of single items add up to that of any weighting.
    singles = np.eye(SIZE)
    parts = np.array([loss(single) for single in singles])
    weights = np.array([0.1, 1.0, 0.5, 0.0, 0.9, 0.3])
    assert loss(weights) == pytest.approx(float(parts @ weights), rel=1e-4)
    assert loss(None) == pytest.approx(float(parts.sum()), rel=1e-4)
    # Each part belongs to its own item: the others' observations do not change it.
    other = batch.observation.numpy()
    other[1:] = -other[1:]
    moved = loss(singles[0], batch._replace(observation=tf.constant(other)))
    assert moved == pytest.approx(parts[0], rel=1e-4)


def test_errors_are_those_of_the_latest_train_step_in_graph_and_eagerly():
    built = build("ddpg")
    step = tf.function(built.agent.train, autograph=False)
    for seed in (1, 2):
        batch = make_batch(built.agent, seed)
        expected = reference_errors("ddpg", built.agent, batch)
        np.testing.assert_allclose(built.priorities(step(batch)), expected, atol=1e-5)
    batch = make_batch(built.agent, 3)
    expected = reference_errors("ddpg", built.agent, batch)
    built.agent.loss(batch)  # Leaves errors behind that belong to nobody.
    np.testing.assert_allclose(built.priorities(built.agent.train(batch)), expected, atol=1e-5)
