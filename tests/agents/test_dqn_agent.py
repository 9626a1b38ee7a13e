"""Our DQN and our Adam against TF-Agents' and Keras', which need more operations for the same."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent as reference_agent
from tf_agents.networks import q_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory
from tf_agents.utils import common

from actor_learner.agents import dqn_agent, optimizers

OBSERVATION = tensor_spec.BoundedTensorSpec([4], tf.float32, -5, 5)
ACTION = tensor_spec.BoundedTensorSpec([], tf.int64, 0, 2)
BATCH = 16
CLIP = 0.05  # Below most norms, so that clipping is seen.


def build(agent_class, optimizer, **settings):
    agent = agent_class(
        ts.time_step_spec(OBSERVATION),
        ACTION,
        q_network=q_network.QNetwork(OBSERVATION, ACTION, fc_layer_params=(8, 8)),
        optimizer=optimizer,
        target_update_period=3,
        td_errors_loss_fn=common.element_wise_huber_loss,
        gamma=0.9,
        reward_scale_factor=2.0,
        train_step_counter=tf.Variable(0, dtype=tf.int64),
        **settings,
    )
    agent.initialize()
    return agent


def same_weights(agent, other):
    for networks in ("_q_network", "_target_q_network"):
        pairs = zip(getattr(agent, networks).variables, getattr(other, networks).variables)
        for variable, source in pairs:
            variable.assign(source)


def batch(generator):
    """Transitions as a stream gives them: also ends of episodes, and pairs that must not count."""
    steps = (BATCH, 2)
    first = generator.choice([ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST], BATCH)
    second = generator.choice([ts.StepType.MID, ts.StepType.LAST], BATCH)
    return trajectory.Trajectory(
        step_type=tf.constant(np.stack([first, second], axis=1), tf.int32),
        observation=tf.constant(generator.normal(size=(*steps, 4)), tf.float32),
        action=tf.constant(generator.integers(0, 3, size=steps)),
        policy_info=(),
        next_step_type=tf.constant(np.stack([second, second], axis=1), tf.int32),
        reward=tf.constant(generator.normal(size=steps), tf.float32),
        discount=tf.constant(generator.integers(0, 2, size=steps), tf.float32),
    )


@pytest.mark.parametrize("name", ["DqnAgent", "DdqnAgent"])
@pytest.mark.parametrize("weighted", [False, True])
def test_training_is_that_of_tf_agents(name, weighted):
    ours = build(getattr(dqn_agent, name), optimizers.Adam(1e-2, clip_norm=CLIP))
    theirs = build(
        getattr(reference_agent, name), tf.keras.optimizers.Adam(1e-2), gradient_clipping=CLIP
    )
    same_weights(ours, theirs)
    generator = np.random.default_rng(7)
    for _ in range(8):  # Two updates of the target network and some steps after each.
        experience = batch(generator)
        weights = tf.constant(generator.random(BATCH), tf.float32) if weighted else None
        made, expected = (agent.train(experience, weights) for agent in (ours, theirs))
        np.testing.assert_allclose(made.loss, expected.loss, rtol=1e-5)
        np.testing.assert_allclose(made.extra.td_error, expected.extra.td_error, atol=1e-5)
        np.testing.assert_allclose(made.extra.td_loss, expected.extra.td_loss, atol=1e-5)
    for mine, other in zip(ours._q_network.variables, theirs._q_network.variables):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    for mine, other in zip(ours._target_q_network.variables, theirs._target_q_network.variables):
        np.testing.assert_allclose(mine, other, atol=1e-5)


def test_double_learning_is_another():
    # With some first weights both would choose the same actions, few as they are.
    tf.keras.utils.set_random_seed(1)
    single = build(dqn_agent.DqnAgent, optimizers.Adam(1e-2))
    double = build(dqn_agent.DdqnAgent, optimizers.Adam(1e-2))
    same_weights(double, single)
    for agent in (single, double):
        # The networks must rate actions differently, or both choose the same.
        for variable in agent._q_network.variables:
            variable.assign(-variable)
    experience = batch(np.random.default_rng(3))
    losses = [float(agent.train(experience).loss) for agent in (single, double)]
    assert abs(losses[0] - losses[1]) > 1e-4


def count_operations(agent):
    experience = batch(np.random.default_rng(0))
    train = tf.function(lambda: agent.train(experience).loss, autograph=False)
    graph = train.get_concrete_function().graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    return sum(node.op not in ("Const", "Identity") for node in [*nodes, *graph.node])


def test_the_train_step_takes_fewer_operations():
    ours = build(dqn_agent.DdqnAgent, optimizers.Adam(1e-2, clip_norm=CLIP))
    theirs = build(
        reference_agent.DdqnAgent, tf.keras.optimizers.Adam(1e-2), gradient_clipping=CLIP
    )
    assert count_operations(ours) < 0.85 * count_operations(theirs)


def test_each_gradient_is_clipped_by_its_own_norm():
    gradients = [
        tf.constant([3.0, 4.0]),
        None,
        tf.constant([[0.3], [0.4]]),
        tf.zeros([5]),
        tf.IndexedSlices(tf.constant([[6.0, 8.0]]), tf.constant([1]), tf.constant([3, 2])),
    ]
    large, none, small, zeros, rows = optimizers.checked(gradients, "gradients", 1.0)
    np.testing.assert_allclose(large, [0.6, 0.8], rtol=1e-6)
    assert none is None
    np.testing.assert_allclose(small, [[0.3], [0.4]], rtol=1e-6)
    np.testing.assert_array_equal(zeros, np.zeros(5))
    np.testing.assert_allclose(tf.convert_to_tensor(rows), [[0, 0], [0.6, 0.8], [0, 0]], rtol=1e-6)
    assert optimizers.checked([None, None], "gradients", 1.0) == [None, None]


def test_adam_is_built_again_from_its_configuration():
    again = optimizers.Adam.from_config(optimizers.Adam(0.01, clip_norm=1.0).get_config())
    variable = tf.Variable([1.0, 1.0])
    reference = tf.Variable([1.0, 1.0])
    again.apply_gradients([(tf.constant([30.0, 40.0]), variable)])
    tf.keras.optimizers.Adam(0.01, clipnorm=1.0).apply_gradients(
        [(tf.constant([30.0, 40.0]), reference)]
    )
    np.testing.assert_allclose(variable, reference, rtol=1e-6)
    assert again.get_config()["clip_norm"] == 1.0


@pytest.mark.parametrize("name", ["DqnAgent", "DdqnAgent"])
def test_where_a_splitter_allows_nothing_everything_counts_as_legal(name):
    """Else the lowest of all floats would be the value of such a state."""
    legal = tf.constant([[1, 0, 1], [0, 0, 0]])

    def split(observation):
        if isinstance(observation, tf.TypeSpec):
            return observation, tf.TensorSpec([3], tf.int32)
        return observation, legal

    agent = build(getattr(dqn_agent, name), None, observation_and_action_constraint_splitter=split)
    observation = tf.ones([2, 4])
    values = agent._target_q_network(observation)[0].numpy()
    online = agent._q_network(observation)[0].numpy()
    chooser = values if name == "DqnAgent" else online
    allowed = [chooser[0][[0, 2]].argmax() * 2, chooser[1].argmax()]
    found = agent._compute_next_q_values(ts.restart(observation, batch_size=2), ())
    np.testing.assert_allclose(found, values[[0, 1], allowed], rtol=1e-6)
