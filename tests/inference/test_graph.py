"""Compiled inference: traced once, fed only what the policy reads, state reset per lane."""

import gymnasium
import numpy as np
import tensorflow as tf
from tf_agents.agents.ddpg import actor_network, critic_network, ddpg_agent
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_rnn_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.agents import algorithm, dqn
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.inference import graph

OBSERVATION = tensor_spec.BoundedTensorSpec([4], tf.float32, -1, 1)
ACTION = tensor_spec.BoundedTensorSpec([], tf.int64, 0, 2)
FIRST, MID = 0, 1


def time_step(step_type, observation):
    lanes = len(step_type)
    return ts.TimeStep(
        np.asarray(step_type, np.int32),
        np.zeros(lanes, np.float32),
        np.ones(lanes, np.float32),
        np.asarray(observation, np.float32),
    )


def world():
    counter = lambda: tf.Variable(0, dtype=tf.int64)  # noqa: E731
    return algorithm.World(ts.time_step_spec(OBSERVATION), ACTION, counter(), counter())


def recurrent_agent():
    tf.keras.utils.set_random_seed(0)  # So that not all units are dead.
    network = q_rnn_network.QRnnNetwork(
        OBSERVATION, ACTION, input_fc_layer_params=(8,), lstm_size=(5,), output_fc_layer_params=None
    )
    agent = dqn_agent.DqnAgent(ts.time_step_spec(OBSERVATION), ACTION, network, optimizer=None)
    agent.initialize()
    return agent


def test_an_exploration_schedule_takes_effect_without_retracing():
    built_world = world()
    agent = dqn.dqn(built_world, epsilon_decay_steps=100, epsilon_end=0.0).agent
    stream = graph.GraphInference(agent.collect_policy, num_lanes=64)
    step = time_step([MID] * 64, np.ones((64, 4)))
    greedy = graph.GraphInference(agent.policy, num_lanes=64).act(step).action

    explored = [stream.act(step).action for _ in range(10)]
    built_world.environment_step.assign(100)
    exploited = [stream.act(step).action for _ in range(10)]

    assert any((actions != greedy).any() for actions in explored)
    assert all((actions == greedy).all() for actions in exploited)
    assert stream.trace_count == 1


def test_a_policy_that_makes_variables_when_called_is_traced_twice_and_then_no_more():
    action = tensor_spec.BoundedTensorSpec([2], tf.float32, -1, 1)
    agent = ddpg_agent.DdpgAgent(
        ts.time_step_spec(OBSERVATION),
        action,
        actor_network.ActorNetwork(OBSERVATION, action, fc_layer_params=(4,)),
        critic_network.CriticNetwork((OBSERVATION, action), joint_fc_layer_params=(4,)),
        actor_optimizer=None,
        critic_optimizer=None,
    )
    stream = graph.GraphInference(agent.collect_policy, num_lanes=3)
    assert stream.trace_count == 2
    step = time_step([MID] * 3, np.ones((3, 4)))
    first, second = stream.act(step).action, stream.act(step).action
    assert stream.trace_count == 2
    assert (first != second).any()  # Noise.
    for actions in (first, second):  # One draw for all lanes, as documented.
        np.testing.assert_array_equal(actions, np.broadcast_to(actions[0], (3, 2)))


class PairEnv(gymnasium.Env):
    """Observations are a pair of a vector and a number; both count the steps."""

    observation_space = gymnasium.spaces.Tuple(
        (gymnasium.spaces.Box(0.0, 100.0, (2,), np.float32), gymnasium.spaces.Discrete(50))
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = 0
        return self._observation(), {}

    def step(self, action):
        self._count += 1
        return self._observation(), 1.0, self._count == 5, False, {}

    def _observation(self):
        return np.full(2, self._count, np.float32), np.int64(self._count)


def test_tuple_observations_reach_the_policy_in_their_places():
    env = gymnasium_environment.GymnasiumEnvironment(
        PairEnv, num_envs=3, vectorization="sync", seed=0
    )
    specs = tensor_spec.from_spec((env.time_step_spec(), env.action_spec()))
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    policy = dqn.dqn(algorithm.World(*specs, *counters), fc_layer_params=(4,)).agent.policy
    stream = graph.GraphInference(policy, num_lanes=3)
    step = env.reset()
    for count in range(5):
        vector, number = step.observation
        assert vector.shape == (3, 2) and number.tolist() == [count] * 3
        expected = policy.action(tf.nest.map_structure(tf.constant, step)).action.numpy()
        action = stream.act(step).action
        np.testing.assert_array_equal(action, expected)
        step = env.step(action)
    env.close()


def test_only_the_observation_of_a_feed_forward_q_policy_is_read():
    agent = dqn.dqn(world()).agent
    stream = graph.GraphInference(agent.collect_policy, num_lanes=2)
    without_values = ts.TimeStep(None, None, None, np.ones((2, 4), np.float32))
    assert stream.act(without_values).action.shape == (2,)


def test_actions_equal_those_of_the_policy_called_eagerly():
    agent = dqn.dqn(world()).agent
    stream = graph.GraphInference(agent.policy, num_lanes=16)
    step = time_step([MID] * 16, np.random.default_rng(0).normal(size=(16, 4)))
    expected = agent.policy.action(tf.nest.map_structure(tf.constant, step)).action.numpy()
    np.testing.assert_array_equal(stream.act(step).action, expected)


def test_recurrent_state_stays_batched_and_is_reset_only_in_lanes_that_start():
    policy = recurrent_agent().policy
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(6, 3, 4))
    step_types = np.full((6, 3), MID)
    step_types[0] = FIRST
    step_types[2, 1] = FIRST
    step_types[4, 0] = FIRST

    stream = graph.GraphInference(policy, num_lanes=3)
    states = []
    for types, observation in zip(step_types, observations):
        states.append(stream.act(time_step(types, observation)).previous_state)

    for lane in range(3):
        alone = graph.GraphInference(policy, num_lanes=1)
        for t in range(6):
            if step_types[t, lane] == FIRST:
                alone.reset()
            # MID for all: only the explicit reset above may clear the state.
            response = alone.act(time_step([MID], observations[t, lane][None]))
            for batched, single in zip(
                tf.nest.flatten(states[t]), tf.nest.flatten(response.previous_state)
            ):
                np.testing.assert_allclose(batched[lane], single[0], atol=1e-6)


def test_reset_forgets_the_state_of_all_lanes():
    stream = graph.GraphInference(recurrent_agent().policy, num_lanes=2)
    step = time_step([MID, MID], np.ones((2, 4)))
    stream.act(step)
    assert any(np.any(s) for s in tf.nest.flatten(stream.act(step).previous_state))
    stream.reset()
    assert not any(np.any(s) for s in tf.nest.flatten(stream.act(step).previous_state))
