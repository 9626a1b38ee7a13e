"""A central critic: the value sees the state of the world, the policy what its agent observes."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner import AgentWorld, World, ppo
from actor_learner.agents.networks import actor_critic_network
from actor_learner.environments import spread
from actor_learner.support import errors
from tests import counting_world


def network_of(env, **more):
    return actor_critic_network.ActorCriticNetwork(
        tensor_spec.from_spec(env.observation_spec()),
        tensor_spec.from_spec(env.action_spec()),
        central_critic=True,
        **more,
    )


def world_of(env):
    return World(
        tensor_spec.from_spec(env.time_step_spec()),
        tensor_spec.from_spec(env.action_spec()),
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )


def test_the_state_is_what_all_agents_of_the_copy_observe():
    env = AgentWorld(spread.Spread, 2, state="observations", seed=0)
    plain = AgentWorld(spread.Spread, 2, seed=0)
    joint, single = env.reset(), plain.reset()
    for _ in range(3):
        np.testing.assert_array_equal(joint.observation["observation"], single.observation)
        for slot in range(6):
            copy = slot // 3
            expected = single.observation[3 * copy : 3 * copy + 3].ravel()
            np.testing.assert_array_equal(joint.observation["state"][slot], expected)
        actions = np.arange(6) % 5
        joint, single = env.step(actions), plain.step(actions)


def test_the_state_is_the_world_s_own():
    env = AgentWorld(spread.Spread, 2, state="world", seed=0)
    assert env.observation_spec()["state"].shape == (12,)
    env.reset()
    time_step = env.step(np.ones(6, np.int64))
    for slot in range(6):
        expected = env._lanes._worlds[slot // 3].state()
        np.testing.assert_array_equal(time_step.observation["state"][slot], expected)


def test_masks_are_not_part_of_the_state():
    env = AgentWorld(counting_world.CountingParallelWorld, 1, state="observations")
    assert env.observation_spec()["state"].shape == (3 * 4,)


@pytest.mark.parametrize("world", [spread.Spread, counting_world.CountingParallelWorld])
def test_only_the_value_looks_at_the_state(world):
    env = AgentWorld(world, 1, state="observations", seed=0)
    network = network_of(env, activation="relu")  # Which large observations do not saturate.
    observation = env.reset().observation
    other = {**observation, "state": observation["state"] + 1.0}
    one, _ = network(observation)
    two, _ = network(other)
    np.testing.assert_array_equal(one.parameters, two.parameters)
    assert not np.allclose(one.value, two.value)
    changed = {**observation, "observation": observation["observation"] + 1.0}
    three, _ = network(changed)
    assert not np.allclose(one.parameters, three.parameters)


def test_a_central_critic_needs_a_state_and_layers_of_its_own():
    with pytest.raises(errors.SpecMismatchError, match="set AgentWorld.state"):
        network_of(AgentWorld(spread.Spread))
    env = AgentWorld(spread.Spread, state="world")
    with pytest.raises(errors.ConfigError, match="share_torso = False"):
        network_of(env, share_torso=True)
    with pytest.raises(errors.ConfigError, match="AgentWorld.state must be"):
        AgentWorld(spread.Spread, state="everything")
    with pytest.raises(errors.ConfigError, match=r"has no state\(\)"):
        AgentWorld(counting_world.CountingParallelWorld, state="world")


def test_ppo_acts_without_the_state():
    env = AgentWorld(functools.partial(spread.Spread, max_steps=4), 2, state="world", seed=0)
    agent = ppo(world_of(env), central_critic=True, fc_layer_params=(8,)).agent
    time_step = env.reset()
    distribution = agent.policy.distribution(tf.nest.map_structure(tf.constant, time_step))
    blind = time_step._replace(
        observation={**time_step.observation, "state": np.zeros((6, 12), np.float32)}
    )
    same = agent.policy.distribution(tf.nest.map_structure(tf.constant, blind))
    np.testing.assert_array_equal(
        distribution.action.probs_parameter(), same.action.probs_parameter()
    )
