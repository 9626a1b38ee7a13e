"""An actor's way of running its policy: chosen by gin, up to date with the learner, seeded."""

import gin
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner.acting import actor, evaluator
from actor_learner.agents import algorithm, dqn
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.support import errors
from tests import counting_environment


@pytest.fixture(autouse=True)
def no_bindings():
    yield
    gin.clear_config()


def counting(lanes=2):
    return gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID,
        lanes,
        vectorization="sync",
        make_kwargs={"episode_lengths": (5,)},
    )


def agent_for(env, epsilon=0.0):
    specs = tensor_spec.from_spec((env.time_step_spec(), env.action_spec()))
    counters = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2)]
    world = algorithm.World(*specs, *counters)
    return dqn.dqn(world, fc_layer_params=(4,), epsilon_start=epsilon, epsilon_end=epsilon).agent


def prefer(agent, action):
    """Lets one action have the highest value, whatever is observed, as training might."""
    *_, kernel, bias = agent.policy.variables()
    kernel.assign(tf.zeros_like(kernel))
    bias.assign(tf.one_hot(action, bias.shape[0]))


def noting(actions):
    return lambda trajectory: actions.append(trajectory.action.tolist())


def test_gin_says_how_policies_are_run():
    env = counting()
    policy = agent_for(env).policy
    step = tf.Variable(0, dtype=tf.int64)
    assert actor.Actor(env, policy, step, steps_per_run=1).inference == "lite"
    with gin.unlock_config():
        gin.parse_config("Actor.inference = 'graph'\nEvaluator.inference = 'no such way'")
    assert actor.Actor(env, policy, step, steps_per_run=1).inference == "graph"
    with pytest.raises(errors.ConfigError, match="got 'no such way'"):
        evaluator.Evaluator(env, policy, episodes=1)


@pytest.mark.parametrize("inference", ["lite", "graph"])
def test_a_run_acts_with_the_weights_of_its_beginning_on(inference):
    env, actions = counting(), []
    agent = agent_for(env)
    step = tf.Variable(0, dtype=tf.int64)
    ours = actor.Actor(
        env, agent.policy, step, steps_per_run=2, observers=[noting(actions)], inference=inference
    )
    for preferred in (1, 0, 1):
        prefer(agent, preferred)
        step.assign_add(1)
        ours.run()
    assert actions == [[1, 1], [0, 0], [1, 1]]


def test_weights_that_change_while_the_train_step_stands_still_take_effect_too():
    env, actions = counting(), []
    agent = agent_for(env)
    ours = actor.Actor(
        env,
        agent.policy,
        tf.Variable(0, dtype=tf.int64),
        steps_per_run=2,
        observers=[noting(actions)],
    )
    for preferred in (1, 0, 1):
        prefer(agent, preferred)
        ours.run()
    assert actions == [[1, 1], [0, 0], [1, 1]]


def test_a_version_that_the_caller_vouches_for_is_believed():
    env, actions = counting(), []
    agent = agent_for(env)
    version, epoch = [3], [0]
    ours = actor.Actor(
        env,
        agent.policy,
        tf.Variable(0, dtype=tf.int64),
        steps_per_run=2,
        observers=[noting(actions)],
        policy_version=lambda: version[0],
        policy_epoch=lambda: epoch[0],
    )
    prefer(agent, 1)
    ours.run()
    prefer(agent, 0)
    ours.run()  # Of version 3 still.
    epoch[0] = 1
    ours.run()
    assert actions == [[1, 1], [1, 1], [0, 0]]
    assert ours.policy_version == 3


def test_an_evaluation_rates_the_weights_of_the_moment():
    env = counting(1)
    agent = agent_for(env)
    rater = evaluator.Evaluator(env, agent.policy, episodes=1)
    seen = []
    inner = rater._stream.act
    rater._stream.act = lambda step: seen.append(inner(step)) or seen[-1]
    for preferred in (1, 0):
        prefer(agent, preferred)
        rater.run()
    assert [int(response.action[0]) for response in seen] == [1] * 5 + [0] * 5


def explored(seed):
    env, actions = counting(), []
    agent = agent_for(env, epsilon=1.0)
    actor.Actor(
        env,
        agent.collect_policy,
        tf.Variable(0, dtype=tf.int64),
        steps_per_run=100,
        observers=[noting(actions)],
        seed=seed,
    ).run()
    return actions


def test_the_seed_says_what_is_explored():
    assert explored(3) == explored(3) != explored(4)


def test_random_initial_actions_and_exploration_have_nothing_in_common():
    env, actions = counting(), []
    agent = agent_for(env, epsilon=1.0)
    ours = actor.Actor(
        env,
        agent.collect_policy,
        tf.Variable(0, dtype=tf.int64),
        steps_per_run=80,
        observers=[noting(actions)],
        environment_step=tf.Variable(0, dtype=tf.int64),
        initial_random_steps=80,
        seed=3,
    )
    ours.run()
    first = np.array(actions[:40])
    actions.clear()
    ours.run()
    assert (first != np.array(actions[:40])).mean() > 0.2
