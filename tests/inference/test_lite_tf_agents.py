"""TFLite gives what TensorFlow gives, for policies as TF-Agents makes them."""

import pytest
import tensorflow as tf
from tf_agents.agents.ddpg import actor_network, critic_network
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.agents.td3 import td3_agent
from tf_agents.networks import (
    actor_distribution_network,
    actor_distribution_rnn_network,
    q_network,
    q_rnn_network,
    value_network,
    value_rnn_network,
)
from tf_agents.policies import actor_policy, random_tf_policy
from tf_agents.trajectories import time_step as ts

from tests.inference import comparing, policies

OBSERVATION = policies.OBSERVATIONS["vector"]
TIME_STEP = ts.time_step_spec(OBSERVATION)
SMALL = {"fc_layer_params": (8,)}


def tf_agents_dqn(**options):
    network = q_network.QNetwork(OBSERVATION, policies.DISCRETE, **SMALL)
    return dqn_agent.DqnAgent(TIME_STEP, policies.DISCRETE, network, None, **options)


def tf_agents_recurrent_dqn():
    network = q_rnn_network.QRnnNetwork(OBSERVATION, policies.DISCRETE, lstm_size=(5, 4))
    return dqn_agent.DqnAgent(TIME_STEP, policies.DISCRETE, network, None)


def tf_agents_sac():
    actor = actor_distribution_network.ActorDistributionNetwork(
        OBSERVATION,
        policies.CONTINUOUS,
        **SMALL,
        continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
    )
    critic = critic_network.CriticNetwork((OBSERVATION, policies.CONTINUOUS))
    return sac_agent.SacAgent(
        TIME_STEP,
        policies.CONTINUOUS,
        critic_network=critic,
        actor_network=actor,
        actor_optimizer=None,
        critic_optimizer=None,
        alpha_optimizer=None,
    )


def tf_agents_td3():
    action = policies.CONTINUOUS
    actor = actor_network.ActorNetwork(OBSERVATION, action, **SMALL)
    critic = critic_network.CriticNetwork((OBSERVATION, action))
    return td3_agent.Td3Agent(TIME_STEP, action, actor, critic, None, None)


def tf_agents_ppo(action, **options):
    return ppo_clip_agent.PPOClipAgent(
        TIME_STEP,
        action,
        optimizer=tf.keras.optimizers.Adam(),
        actor_net=actor_distribution_network.ActorDistributionNetwork(OBSERVATION, action, **SMALL),
        value_net=value_network.ValueNetwork(OBSERVATION, **SMALL),
        **options,
    )


def tf_agents_recurrent_ppo():
    action = policies.CONTINUOUS
    actor = actor_distribution_rnn_network.ActorDistributionRnnNetwork(
        OBSERVATION, action, lstm_size=(5,)
    )
    return ppo_clip_agent.PPOClipAgent(
        TIME_STEP,
        action,
        optimizer=tf.keras.optimizers.Adam(),
        actor_net=actor,
        value_net=value_rnn_network.ValueRnnNetwork(OBSERVATION, lstm_size=(5,)),
    )


def tf_agents_reinforce():
    action = policies.DISCRETE
    actor = actor_distribution_network.ActorDistributionNetwork(OBSERVATION, action, **SMALL)
    return reinforce_agent.ReinforceAgent(TIME_STEP, action, actor, None)


OF_TF_AGENTS = {
    "epsilon-greedy": lambda: tf_agents_dqn(epsilon_greedy=0.4),
    "Boltzmann": lambda: tf_agents_dqn(boltzmann_temperature=0.5, epsilon_greedy=None),
    "recurrent Q": tf_agents_recurrent_dqn,
    "squashed Gaussian": tf_agents_sac,
    "Gaussian noise": tf_agents_td3,
    "PPO discrete": lambda: tf_agents_ppo(policies.DISCRETE),
    "PPO continuous": lambda: tf_agents_ppo(policies.CONTINUOUS),
    "PPO with values": lambda: tf_agents_ppo(
        policies.DISCRETE, compute_value_and_advantage_in_train=False
    ),
    "recurrent PPO": tf_agents_recurrent_ppo,
    "REINFORCE": tf_agents_reinforce,
}


@pytest.mark.parametrize("name", OF_TF_AGENTS)
def test_agents_of_tf_agents_act_alike(name, monkeypatch):
    tf.keras.utils.set_random_seed(3)
    agent = OF_TF_AGENTS[name]()
    agent.initialize()
    policies.shake(agent.collect_policy)
    for policy in (agent.collect_policy, policies.greedy(agent.policy)):
        comparing.assert_same(policy, OBSERVATION, monkeypatch, steps=20)


def test_policies_of_tf_agents_without_an_agent_act_alike(monkeypatch):
    actor = actor_distribution_network.ActorDistributionNetwork(
        OBSERVATION, policies.CONTINUOUS, **SMALL
    )
    actor_policy_ = actor_policy.ActorPolicy(TIME_STEP, policies.CONTINUOUS, actor)
    comparing.assert_same(actor_policy_, OBSERVATION, monkeypatch, steps=5)
    random_policy = random_tf_policy.RandomTFPolicy(TIME_STEP, policies.ALL_ACTIONS)
    comparing.assert_same(random_policy, OBSERVATION, monkeypatch, steps=5)
