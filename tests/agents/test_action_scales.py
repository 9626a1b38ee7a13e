"""Whatever the bounds and the dtype of an action, agents explore, rate and learn alike."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.agents import algorithm, cql_sac, ddpg, sac, td3
from actor_learner.agents.networks import default_networks
from actor_learner.inference import graph
from actor_learner.learning import checkpoints
from actor_learner.support import errors
from benchmarks import one_step_problem

AGENTS = sorted(one_step_problem.AGENTS)
LOW = [-0.05, -0.4, -2.0, -100.0, 0.0, -3.0]
HIGH = [0.05, 0.4, 2.0, 100.0, 1.0, 1.0]
DTYPES = {"float32": tf.float32, "float64": tf.float64}
NETWORKS = {"actor_fc_layer_params": (8,), "critic_fc_layer_params": (8,)}


def learned_a_little(name, low, high, dtype=tf.float32):
    """What the policy of an agent does after a few train steps, in units of half the range."""
    learning = one_step_problem.Learning(name, low, high, dtype)
    learning.train(5, eagerly=True)
    tf.random.set_seed(3)
    return learning.normalized(learning.actions()[1])


@functools.cache
def learned_in_unit_bounds(name):
    return learned_a_little(name, [-1.0] * 6, [1.0] * 6)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("name", AGENTS)
def test_a_few_train_steps_do_the_same_at_every_scale(name, dtype):
    scaled = learned_a_little(name, LOW, HIGH, DTYPES[dtype])
    np.testing.assert_allclose(scaled, learned_in_unit_bounds(name), atol=2e-4)


@pytest.mark.parametrize("name", AGENTS)
def test_the_same_problem_is_learned_at_every_scale(name):
    learning = one_step_problem.Learning(name, LOW, HIGH)
    before = learning.error()
    learning.train(400)
    assert (learning.error() < 0.17).all() and (learning.error() < 0.6 * before).all()


def test_scales_that_are_powers_of_two_change_no_bit():
    scaled = learned_a_little("ddpg", [-0.125, -64.0], [0.125, 64.0])
    np.testing.assert_array_equal(scaled, learned_a_little("ddpg", [-1.0, -1.0], [1.0, 1.0]))


def build(builder, dtype=tf.float32, **options):
    observation = tensor_spec.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
    action = tensor_spec.BoundedTensorSpec([6], dtype, LOW, HIGH)
    counters = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
    world = algorithm.World(ts.time_step_spec(observation), action, *counters)
    agent = builder(world, **NETWORKS, **options).agent
    agent.initialize()
    return agent


def steps(lanes):
    ones = np.ones(lanes, np.float32)
    return ts.TimeStep(ones.astype(np.int32), 0 * ones, ones, np.zeros((lanes, 2), np.float32))


def in_half_ranges(actions):
    centre, half_range = np.mean([LOW, HIGH], axis=0), np.subtract(HIGH, LOW) / 2
    return (actions - centre) / half_range


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize(
    "builder, options",
    [
        (td3.td3, {"exploration_noise": 0.2}),
        (ddpg.ddpg, {"noise_stddev": 0.2, "noise_damping": 0.5}),
    ],
)
def test_exploration_noise_is_in_units_of_half_the_range(builder, options, dtype):
    agent = build(builder, DTYPES[dtype], **options)
    actions = graph.GraphInference(agent.collect_policy, 2_000).act(steps(2_000)).action
    np.testing.assert_allclose(in_half_ranges(actions).std(axis=0), 0.2, rtol=0.1)


def test_target_actions_of_td3_stay_within_their_bounds():
    agent = build(td3.td3, target_policy_noise=3.0, target_policy_noise_clip=2.0).inner
    seen = []

    def rate(network, inputs, *args, **kwargs):
        seen.append(inputs[1].numpy())
        return network(inputs, *args, **kwargs)

    for which in ("_target_critic_network_1", "_target_critic_network_2"):
        setattr(agent, which, functools.partial(rate, getattr(agent, which)))
    batch = tensor_spec.sample_spec_nest(agent.collect_data_spec, seed=0, outer_dims=(64, 2))
    time_steps, policy_steps, next_time_steps = agent._as_transition(batch)
    agent.critic_loss(time_steps, policy_steps.action, next_time_steps)
    first, second = seen
    np.testing.assert_array_equal(first, second)
    assert np.abs(first).max() == 1.0
    assert 0.2 < np.mean(np.abs(first) == 1.0) < 0.9  # Many were beyond.


def test_target_noise_of_td3_is_clipped_to_its_own_bound():
    agent = build(td3.td3, target_policy_noise=3.0, target_policy_noise_clip=0.25).inner
    seen = []
    critic = agent._target_critic_network_1

    def rate(inputs, *args, **kwargs):
        seen.append(inputs[1].numpy())
        return critic(inputs, *args, **kwargs)

    agent._target_critic_network_1 = rate
    batch = tensor_spec.sample_spec_nest(agent.collect_data_spec, seed=0, outer_dims=(64, 2))
    time_steps, policy_steps, next_time_steps = agent._as_transition(batch)
    agent.critic_loss(time_steps, policy_steps.action, next_time_steps)
    noise = seen[0] - agent._target_actor_network(next_time_steps.observation)[0].numpy()
    assert np.abs(noise).max() == pytest.approx(0.25, abs=1e-6)


@pytest.mark.parametrize("builder", [sac.sac, cql_sac.cql_sac])
@pytest.mark.parametrize("log_stddev", [-1e4, 1e4])
def test_the_log_standard_deviation_of_sac_is_bounded(builder, log_stddev):
    agent = build(builder)
    bias = agent.policy.variables()[-1]
    assert bias.shape == (12,)  # Means, then logarithms of standard deviations.
    bias.assign(np.repeat([0.0, log_stddev], 6))
    distribution = agent.policy.distribution(steps(3)).action
    bound = default_networks.LOG_STDDEV_BOUNDS[int(log_stddev > 0)]
    stddev = distribution.input_distribution.stddev()
    np.testing.assert_allclose(stddev, np.full((3, 6), np.exp(bound)), rtol=1e-5)
    batch = tensor_spec.sample_spec_nest(agent.collect_data_spec, seed=0, outer_dims=(8, 2))
    batch = batch._replace(reward=tf.ones([8, 2]), discount=tf.ones([8, 2]))
    assert np.isfinite(agent.train(batch).loss)


def test_the_entropy_of_sac_is_that_of_actions_in_unit_bounds():
    agent = build(sac.sac).inner
    _, log_density = agent._actions_and_log_probs(tf.nest.map_structure(tf.constant, steps(500)))
    # A Gaussian of deviation 1, squashed, is nearly uniform: its density is near 1 / 2 ** 6.
    assert -np.mean(log_density) == pytest.approx(6 * np.log(2.0), abs=1.5)
    assert agent._target_entropy == -6.0


@pytest.mark.parametrize("name", AGENTS)
def test_exported_policies_act_within_the_bounds(name, tmp_path):
    learning = one_step_problem.Learning(name, LOW, HIGH, tf.float64)
    agent, observation = learning.agent, learning.actions()[0]
    step = ts.TimeStep(*steps(len(observation))[:3], observation)
    greedy = greedy_policy.GreedyPolicy(agent.policy)
    for policy in (greedy, agent.collect_policy):
        directory = str(tmp_path / type(policy).__name__)
        policy_saver.PolicySaver(policy).save(directory)
        state = policy.get_initial_state(len(observation))
        loaded = tf.saved_model.load(directory)
        actions = loaded.action(tf.nest.map_structure(tf.constant, step), state).action
        assert actions.dtype == tf.float64
        low, high = learning.spec.minimum, learning.spec.maximum
        assert (actions >= low).numpy().all() and (actions <= high).numpy().all()
        if policy is greedy:
            np.testing.assert_allclose(actions, greedy.action(step).action, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_distributions_are_in_the_units_of_the_environment(dtype):
    agent = build(sac.sac, DTYPES[dtype])
    distribution = agent.policy.distribution(steps(1)).action
    actions = distribution.sample(2_000)[:, 0].numpy()
    assert actions.dtype == dtype
    density = distribution.log_prob(actions[:5, np.newaxis])[:, 0]
    inner = agent.inner.policy.distribution(steps(1)).action
    expected = inner.log_prob(in_half_ranges(actions[:5, np.newaxis]).astype(np.float32))[:, 0]
    volume = np.log(np.subtract(HIGH, LOW) / 2).sum()
    np.testing.assert_allclose(density, expected - volume, rtol=1e-3)
    drawn = graph.GraphInference(agent.policy, 2_000).act(steps(2_000)).action
    for which in (np.mean, np.std):
        ours, theirs = (in_half_ranges(which(a, axis=0)) for a in (actions, drawn))
        np.testing.assert_allclose(ours, theirs, atol=0.1)


def test_checkpoints_whose_critics_know_other_units_are_refused(tmp_path):
    # Before, the agent that is the inner one now was trained in the environment's units.
    old = checkpoints.Checkpointer(str(tmp_path), agent=build(ddpg.ddpg).inner)
    old.save(1)
    new = checkpoints.Checkpointer(str(tmp_path), agent=build(ddpg.ddpg))
    with pytest.raises(errors.CheckpointError, match="does not fit"):
        new.initialize_or_restore()


@pytest.mark.parametrize("low, high", [(-np.inf, np.inf), (-3e38, 3e38), (0.0, np.inf)])
@pytest.mark.parametrize("builder", [sac.sac, cql_sac.cql_sac, td3.td3, ddpg.ddpg])
def test_actions_without_bounds_are_refused(builder, low, high):
    observation = tensor_spec.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
    action = tensor_spec.BoundedTensorSpec([1], tf.float32, low, high)
    counters = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
    with pytest.raises(errors.SpecMismatchError, match="an action with bounds"):
        builder(algorithm.World(ts.time_step_spec(observation), action, *counters))
