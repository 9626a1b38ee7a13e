"""Agents that learn from replay, with observations and rewards normalised by running statistics."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import greedy_policy, policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.agents import (
    algorithm,
    bc,
    c51,
    cql_sac,
    ddpg,
    dqn,
    normalization,
    r2d2,
    sac,
    td3,
)
from actor_learner.agents import normalized_agent as normalized_agent_lib
from actor_learner.runs.runners import threads
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
OBSERVATION = {"choice": B([], tf.int64, 0, 3), "position": B([3], tf.float32, -1e6, 1e6)}
DISCRETE = B([], tf.int64, 0, 2)
CONTINUOUS = B([2], tf.float32, [-2.0, -1.0], [2.0, 1.0])
OFFSET, SCALE = np.array([5.0, -800.0, 0.02]), np.array([2.0, 300.0, 0.001])
GAMMA, N_STEP, BATCH, LENGTH = 0.9, 3, 32, 6

_ACTOR_CRITIC = {"actor_fc_layer_params": (8,), "critic_fc_layer_params": (8,)}
BUILDERS = {
    "dqn": (dqn.dqn, DISCRETE, {"fc_layer_params": (8,)}),
    "c51": (c51.c51, DISCRETE, {"fc_layer_params": (8,)}),
    "sac": (sac.sac, CONTINUOUS, _ACTOR_CRITIC),
    "td3": (td3.td3, CONTINUOUS, _ACTOR_CRITIC),
    "ddpg": (ddpg.ddpg, CONTINUOUS, _ACTOR_CRITIC),
    "cql_sac": (cql_sac.cql_sac, CONTINUOUS, _ACTOR_CRITIC),
    "bc": (bc.bc, DISCRETE, {"fc_layer_params": (8,)}),
    "r2d2": (
        r2d2.r2d2,
        DISCRETE,
        {"fc_layer_params": (8,), "lstm_size": 4, "head_layer_params": (4,), "burn_in": 0},
    ),
}
WITH_REWARDS = sorted(set(BUILDERS) - {"bc"})


def build(name, *, observation=OBSERVATION, **options):
    builder, action, small = BUILDERS[name]
    if name != "bc":
        options = {"gamma": GAMMA, "n_step": N_STEP, **options}
    world = algorithm.World(
        ts.time_step_spec(observation),
        action,
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    built = builder(world, **{**small, **options})
    built.agent.initialize()
    return built


def build_normalized(name, **options):
    rewards = {} if name == "bc" else {"normalize_rewards": True}
    return build(name, normalize_observations=True, **rewards, **options)


def batch_for(built, generator):
    """A batch whose observations and rewards have very different scales."""
    spec = built.agent.collect_data_spec
    sequences = built.kind == experience.SEQUENCES
    rows = LENGTH if sequences else 2
    if sequences:
        info = {k: v for k, v in spec.policy_info.items() if k != experience.STATE}
        spec = spec._replace(policy_info=info)
    sampled = tensor_spec.sample_spec_nest(spec, outer_dims=(BATCH, rows))
    if sequences:
        values = {k: tf.random.normal([BATCH, rows]) for k in sampled.policy_info}
        sampled = sampled._replace(policy_info=values)
    position = generator.normal(OFFSET, SCALE, (BATCH, rows, 3)).astype(np.float32)
    observation = {**sampled.observation, "position": tf.constant(position)}
    step_type = np.ones((BATCH, rows), np.int32)
    reward = generator.normal(30.0, 40.0, (BATCH, rows)).astype(np.float32)
    mask = np.ones((BATCH, rows), np.float32)
    if sequences:
        step_type[: BATCH // 2, 3] = ts.StepType.LAST  # Which no step leaves,
        mask[: BATCH // 2, 4:] = 0.0  # and nothing follows.
        reward[: BATCH // 2, 3:] = 1e6
    else:
        reward[:, 1] = 1e6  # Where a transition leads to has no reward to learn from.
    trajectory = sampled._replace(
        observation=observation,
        reward=tf.constant(reward),
        discount=tf.ones([BATCH, rows]),
        step_type=tf.constant(step_type),
        next_step_type=tf.constant(step_type),
    )
    if not sequences:
        return trajectory
    state = built.agent.collect_policy.get_initial_state(BATCH)
    return experience.Sequence(trajectory, state, tf.constant(mask))


class Reference:
    """The statistics by NumPy, over all batches at once."""

    def __init__(self, built, batches, n_step=N_STEP):
        sequences = built.kind == experience.SEQUENCES
        positions, rewards = [], []
        for batch in batches:
            trajectory = batch.trajectory if sequences else batch
            position, reward = trajectory.observation["position"].numpy(), trajectory.reward.numpy()
            if sequences:
                real = batch.mask.numpy() > 0
                positions.append(position[real])
                rewards.append(reward[real & (trajectory.step_type.numpy() != ts.StepType.LAST)])
            else:
                positions.append(position.reshape(-1, 3))
                rewards.append(reward[:, 0])
        values = np.concatenate(positions).astype(np.float64)
        self.mean, self.deviation = values.mean(axis=0), values.std(axis=0)
        rms = np.sqrt(np.mean(np.square(np.concatenate(rewards).astype(np.float64))))
        self.factor = (1.0 - GAMMA ** (1 if sequences else n_step)) / rms

    def observation(self, observation):
        position = (np.asarray(observation["position"]) - self.mean) / self.deviation
        position = np.clip(position, -10.0, 10.0).astype(np.float32)
        return {**observation, "position": tf.constant(position)}

    def batch(self, batch, rewards=True, observations=True):
        trajectory = batch.trajectory if isinstance(batch, experience.Sequence) else batch
        changed = {}
        if observations:
            changed["observation"] = self.observation(trajectory.observation)
        if rewards:
            reward = np.clip(trajectory.reward.numpy() * self.factor, -10.0, 10.0)
            changed["reward"] = tf.constant(reward.astype(np.float32))
        trajectory = trajectory._replace(**changed)
        if isinstance(batch, experience.Sequence):
            return batch._replace(trajectory=trajectory)
        return trajectory


@functools.cache
def trained(name):
    """An agent after three train steps, which no test trains further, and what it has seen."""
    built = build_normalized(name)
    generator = np.random.default_rng(0)
    batches = [batch_for(built, generator) for _ in range(3)]
    train = tf.function(built.agent.train)
    for batch in batches:
        train(batch)
    return built, batches, Reference(built, batches)


@contextlib.contextmanager
def kept(agent):
    """Gives the policy's variables their values back."""
    values = [variable.numpy() for variable in agent.policy.variables()]
    yield
    for variable, value in zip(agent.policy.variables(), values):
        variable.assign(value)


def time_steps(generator, size):
    observation = {
        "choice": tf.constant(generator.integers(0, 4, size)),
        "position": tf.constant(generator.normal(OFFSET, SCALE, (size, 3)).astype(np.float32)),
    }
    return ts.restart(observation, size)


def distribution_of(policy, step):
    """What the policy would do, without a draw: arrays."""
    state = policy.get_initial_state(step.step_type.shape[0])
    try:
        made = policy.distribution(step, state).action
    except NotImplementedError:
        return policy.action(step, state).action.numpy()
    return (made.mode() if hasattr(made, "mode") else made.mean()).numpy()


class Spy:
    """Stands in for the train step of an agent; keeps what it is given."""

    def __init__(self, agent, monkeypatch):
        self.given = []
        monkeypatch.setattr(agent, "train", self._train)

    def _train(self, experience, weights):
        self.given.append(experience)
        return tf_agent.LossInfo(tf.constant(0.0), ())


def assert_equal_batches(batch, expected):
    for ours, theirs in zip(tf.nest.flatten(batch), tf.nest.flatten(expected)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_acting_and_learning_use_the_statistics_of_all_batches(name, monkeypatch):
    built, batches, reference = trained(name)
    agent, inner = built.agent, built.agent.inner
    step = time_steps(np.random.default_rng(1), 16)
    by_hand = step._replace(observation=reference.observation(step.observation))
    np.testing.assert_allclose(
        distribution_of(agent.policy, step), distribution_of(inner.policy, by_hand), atol=1e-3
    )
    spy = Spy(inner, monkeypatch)
    with kept(agent):
        agent.train(batches[0])
    assert_equal_batches(spy.given[0], reference.batch(batches[0], name != "bc"))
    assert np.abs(reference.observation(step.observation)["position"]).max() < 5.0


@pytest.mark.parametrize("name", ["sac", "r2d2"])
@pytest.mark.parametrize("observations", [True, False])
def test_either_can_be_normalised_alone(name, observations, monkeypatch):
    built = build(name, normalize_observations=observations, normalize_rewards=not observations)
    variables = [variable.name for variable in built.agent.policy.variables()]
    assert ("observation_1/mean:0" in variables) == observations
    assert ("reward/mean:0" in variables) != observations
    spy = Spy(built.agent.inner, monkeypatch)
    batch = batch_for(built, np.random.default_rng(0))
    for _ in range(2):  # The statistics are updated last.
        built.agent.train(batch)
    reference = Reference(built, [batch])
    assert_equal_batches(
        spy.given[1], reference.batch(batch, observations=observations, rewards=not observations)
    )


def test_without_the_options_an_agent_is_as_it_was():
    built = build("dqn")
    assert not isinstance(built.agent, normalized_agent_lib.NormalizedAgent)
    assert all("mean" not in variable.name for variable in built.agent.policy.variables())


@pytest.mark.parametrize("name", ["sac", "r2d2"])
def test_exported_policies_act_alike(name, tmp_path):
    built, _, _ = trained(name)
    step = time_steps(np.random.default_rng(2), 16)
    agent = built.agent
    is_greedy = isinstance(agent.policy, greedy_policy.GreedyPolicy)
    assert is_greedy == (name != "sac")  # As of the agent without statistics.
    greedy = agent.policy if is_greedy else greedy_policy.GreedyPolicy(agent.policy)
    policy_saver.PolicySaver(greedy).save(str(tmp_path / "greedy"))
    loaded = tf.saved_model.load(str(tmp_path / "greedy"))
    state = greedy.get_initial_state(16)
    np.testing.assert_allclose(
        loaded.action(step, state).action, greedy.action(step, state).action, rtol=1e-5
    )
    exported = {value.numpy().tobytes() for value in loaded.model_variables}
    for variable in agent.policy.variables():
        assert variable.numpy().tobytes() in exported


@pytest.mark.parametrize("name", ["dqn", "r2d2"])
def test_a_checkpoint_restores_the_statistics(name, tmp_path):
    built, batches, _ = trained(name)
    path = tf.train.Checkpoint(agent=built.agent).save(str(tmp_path / "ckpt"))
    fresh = build_normalized(name)
    tf.train.Checkpoint(agent=fresh.agent).restore(path).assert_existing_objects_matched()
    for old, new in zip(built.agent.policy.variables(), fresh.agent.policy.variables()):
        np.testing.assert_array_equal(new, old)
    np.testing.assert_allclose(
        fresh.agent.loss(batches[0]).loss, built.agent.loss(batches[0]).loss, rtol=1e-6
    )


@pytest.mark.parametrize("name", ["td3", "r2d2"])
def test_who_follows_the_policys_variables_acts_by_the_learners_statistics(name):
    learner, _, reference = trained(name)
    actor = build_normalized(name)
    threads.PolicyCopy(
        learner.agent.collect_policy.variables(), actor.agent.collect_policy.variables()
    ).apply()
    step = time_steps(np.random.default_rng(5), 16)
    by_hand = step._replace(observation=reference.observation(step.observation))
    np.testing.assert_allclose(
        distribution_of(actor.agent.policy, step),
        distribution_of(learner.agent.inner.policy, by_hand),
        atol=1e-3,
    )


def test_new_sequences_get_priorities_by_the_learners_scale_of_rewards():
    built, batches, reference = trained("r2d2")
    plain = build("r2d2")

    def as_numpy(batch):
        return tf.nest.map_structure(lambda leaf: leaf.numpy(), batch)

    np.testing.assert_allclose(
        built.initial_priorities(as_numpy(batches[0])),
        plain.initial_priorities(as_numpy(reference.batch(batches[0]))),
        rtol=1e-4,
    )


@pytest.mark.parametrize("n_step", [1, 5])
def test_scaled_returns_are_about_one_whatever_the_steps_of_a_reward(n_step):
    normalizer = normalization.SampledRewardNormalizer(GAMMA, n_step)
    reward = -250.0 * sum(GAMMA**k for k in range(n_step))  # 250 a step, for ever.
    normalizer.update(tf.fill([64], reward))
    scaled = float(normalizer.normalize(reward))
    np.testing.assert_allclose(scaled / (1.0 - GAMMA**n_step), -1.0, rtol=1e-5)


def test_scaled_rewards_are_clipped_and_zero_stays_zero():
    normalizer = normalization.SampledRewardNormalizer(GAMMA, limit=0.5)
    normalizer.update(tf.constant([1.0, -1.0, 1.0]))
    np.testing.assert_allclose(
        normalizer.normalize(tf.constant([0.0, 1.0, -1e4, 1e4])), [0.0, 0.1, -0.5, 0.5], rtol=1e-5
    )


@pytest.mark.parametrize(
    "options, words",
    [
        ({"observation_limit": 5.0}, "dqn.observation_limit is 5.0, but has no effect without"),
        ({"reward_limit": 5.0}, "dqn.reward_limit is 5.0, but has no effect without"),
        ({"normalize_rewards": True, "gamma": 1.0}, "gamma below 1"),
        ({"normalize_rewards": True, "reward_limit": 0.0}, "limit of rewards must be above 0"),
        ({"normalize_observations": True, "observation_limit": -1.0}, "must be above 0"),
    ],
)
def test_settings_without_sense_are_refused(options, words):
    with pytest.raises(errors.ConfigError, match=words):
        build("dqn", **options)


def accuracy_of_cloning(scale, normalize):
    """How often a policy is right that learns to tell whether the first element is positive."""
    tf.keras.utils.set_random_seed(0)
    spec = B([3], tf.float32, -1e9, 1e9)
    built = build("bc", observation=spec, normalize_observations=normalize)
    generator = np.random.default_rng(0)

    def sample(size):
        observation = (scale * generator.normal(size=(size, 3))).astype(np.float32)
        return observation, (observation[:, 0] > 0).astype(np.int64)

    train = tf.function(built.agent.train)
    spec = built.agent.collect_data_spec
    rows = tensor_spec.sample_spec_nest(spec, outer_dims=(64, 2))
    for _ in range(300):
        observation, action = sample(64)
        train(
            rows._replace(
                observation=tf.constant(np.stack([observation] * 2, axis=1)),
                action=tf.constant(np.stack([action] * 2, axis=1)),
            )
        )
    observation, action = sample(500)
    chosen = built.agent.policy.action(ts.restart(tf.constant(observation), 500)).action
    return float(np.mean(chosen.numpy() == action))


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_observations_of_any_scale_are_learned_from(scale):
    assert accuracy_of_cloning(scale, normalize=True) > 0.9


def test_tiny_observations_are_hardly_learned_from_without():
    assert accuracy_of_cloning(1e-3, normalize=False) < 0.7
