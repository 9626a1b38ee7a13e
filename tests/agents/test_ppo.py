"""PPO: ratios, epochs, statistics, penalties, policies."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.agents import algorithm, ppo, unroll_policy
from actor_learner.agents.losses import ppo_loss
from actor_learner.support import errors
from tests.agents import unrolls
from tests.agents.losses import test_gae

B = tensor_spec.BoundedTensorSpec
VECTOR = B([4], tf.float32, -100, 100)
NESTED = {"image": B([10, 10, 1], tf.uint8, 0, 255), "vector": B([3], tf.float64, -100, 100)}
ACTIONS = {
    "discrete": B([], tf.int32, 3, 5),
    "continuous": B([2], tf.float32, [-2.0, 0.0], [2.0, 0.1]),
    "multi-discrete": B([3], tf.int64, [0, 0, 0], [1, 4, 2]),
    "nested": {
        "move": B([2], tf.float32, -1, 1),
        "switches": B([3], tf.int64, [0, 0, 0], [1, 4, 2]),
        "tool": B([], tf.int64, 0, 3),
    },
}
MEMORY = {"lstm_size": 5, "share_torso": True}
LANES, LENGTH = 6, 5


def make(action="discrete", observation=VECTOR, **options):
    world = algorithm.World(
        ts.time_step_spec(observation),
        ACTIONS[action],
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    options = {"fc_layer_params": (8,), "epochs": 2, "minibatch_size": 16, **options}
    return world, ppo.ppo(world, **options).agent


def train_function(agent):
    return tf.function(agent.train, autograph=False)


@pytest.mark.parametrize(
    "action, observation, memory",
    [
        ("discrete", VECTOR, {}),
        ("continuous", VECTOR, {}),
        ("multi-discrete", NESTED, {}),
        ("nested", VECTOR, MEMORY),
    ],
)
def test_before_any_learning_every_ratio_is_one(action, observation, memory):
    # A ratio further from 1 than the clip range would show in the clip fraction.
    _, agent = make(
        action,
        observation,
        epochs=1,
        minibatch_size=10_000,
        clip_ratio=1e-5,
        normalize_observations=True,
        normalize_rewards=True,
        learning_rate=0.05,
        **memory,
    )
    collector = unrolls.Collector(agent, LANES, LENGTH)
    train = train_function(agent)
    for scale in (1.0, 20.0, 0.3):  # From the second on, the statistics are others.
        info = train(collector.collect(scale)).extra
        assert info.clip_fraction.numpy() == 0.0
        np.testing.assert_allclose(info.kl, 0.0, atol=1e-6)
    # The policy did move: on data of an older policy the ratio is another.
    unroll = collector.collect()
    train(unroll)
    assert agent.loss(unroll).extra.clip_fraction.numpy() > 0.5


class Counted:
    """Replaces the loss by one that counts how often each frame is used, by its reward."""

    def __init__(self, agent, num_frames):
        self.counts = tf.Variable(tf.zeros([num_frames], tf.int32))
        self.sizes = tf.Variable(tf.zeros([1000], tf.int32))
        self.minibatches = tf.Variable(0)
        self._real = agent._loss_of
        agent._loss_of = self

    def __call__(self, frames, masked, **arguments):
        # With gamma and lambda 0 the target of the value is the reward: the frame's number.
        used = tf.cast(frames.mask, tf.int32)
        number = used * tf.cast(tf.round(frames.value_target), tf.int32)
        self.counts.scatter_add(tf.IndexedSlices(tf.reshape(used, [-1]), tf.reshape(number, [-1])))
        self.sizes.scatter_update(tf.IndexedSlices(tf.reduce_sum(used), self.minibatches))
        self.minibatches.assign_add(1)
        return self._real(frames, masked=masked, **arguments)


@pytest.mark.parametrize(
    "minibatch_size, memory",
    [(3, {}), (7, {}), (16, {}), (1000, {}), (1, MEMORY), (19, MEMORY), (1000, MEMORY)],
)
def test_each_epoch_uses_every_step_once_and_no_boundary_row(minibatch_size, memory):
    _, agent = make(epochs=3, minibatch_size=minibatch_size, gamma=0.0, gae_lambda=0.0, **memory)
    unroll = unrolls.Collector(agent, LANES, LENGTH).collect()
    rows = LANES * (LENGTH + 1)
    numbers = tf.reshape(tf.range(float(rows)), [LANES, LENGTH + 1])
    unroll = unroll._replace(trajectory=unroll.trajectory._replace(reward=numbers))
    counted = Counted(agent, rows)
    agent.train(unroll)
    is_step = unroll.trajectory.step_type.numpy() != test_gae.LAST
    is_step[:, -1] = False
    assert 0 < np.count_nonzero(is_step) < LANES * LENGTH
    np.testing.assert_array_equal(counted.counts, 3 * is_step.reshape(-1))
    sizes = counted.sizes[: counted.minibatches].numpy()
    assert sizes.sum() == 3 * np.count_nonzero(is_step)
    if not memory:
        assert sizes.max() <= minibatch_size
        assert sizes.max() - sizes.min() <= 1


def test_boundary_rows_do_not_shift_means():
    generator = np.random.default_rng(0)
    mask = (generator.random((4, 7)) < 0.6).astype(np.float32)
    columns = [generator.normal(size=(4, 7)).astype(np.float32) for _ in range(7)]
    frames = ppo_loss.Frames(*columns[:4], mask)
    loss = ppo_loss.PPOLoss(value_clip=0.1, entropy_weight=0.1)
    masked, masked_info = loss(frames, *columns[4:], kl_weight=0.3, masked=True)
    steps = ppo_loss.Frames(*(column[mask > 0] for column in frames))
    plain, plain_info = loss(steps, *(column[mask > 0] for column in columns[4:]), kl_weight=0.3)
    np.testing.assert_allclose(masked, plain, rtol=1e-5)
    np.testing.assert_allclose(masked_info, plain_info, rtol=1e-5)


def test_the_loss_equals_a_plain_computation():
    generator = np.random.default_rng(1)
    old, advantage, target, old_value, new, entropy, value = generator.normal(size=(7, 50)) * 0.5
    frames = ppo_loss.Frames(old, advantage, target, old_value, np.ones(50))
    as_tensors = ppo_loss.Frames(*(tf.constant(column, tf.float32) for column in frames))
    loss, info = ppo_loss.PPOLoss(clip_ratio=0.2, value_clip=0.3, entropy_weight=0.01)(
        as_tensors, *(tf.constant(c, tf.float32) for c in (new, entropy, value)), kl_weight=2.0
    )
    ratio = np.exp(new - old)
    a = (advantage - advantage.mean()) / advantage.std()
    policy_loss = -np.minimum(ratio * a, np.clip(ratio, 0.8, 1.2) * a).mean()
    near = old_value + np.clip(value - old_value, -0.3, 0.3)
    value_loss = np.maximum((value - target) ** 2, (near - target) ** 2).mean()
    kl = (ratio - 1 - np.log(ratio)).mean()
    clip_fraction = (np.abs(ratio - 1) > 0.2).mean()
    explained = 1 - ((value - target) ** 2).mean() / target.var()
    parts = [policy_loss, value_loss, entropy.mean(), kl, clip_fraction, explained, 0.0]
    np.testing.assert_allclose(info, parts, rtol=1e-4)
    expected = policy_loss + 0.5 * value_loss - 0.01 * entropy.mean() + 2.0 * kl
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_one_call_is_one_train_step_however_many_minibatches():
    world, agent = make(epochs=3, minibatch_size=5)
    collector = unrolls.Collector(agent, LANES, LENGTH)
    for expected in (1, 2):
        loss = agent.train(collector.collect())
        assert world.train_step.numpy() == expected
    assert np.isfinite(loss.loss)
    assert loss.extra._fields == (
        "policy_loss",
        "value_loss",
        "entropy",
        "kl",
        "clip_fraction",
        "explained_variance",
        "gradient_norm",
    )


def test_an_unroll_without_any_step_changes_nothing():
    world, agent = make()
    unroll = unrolls.Collector(agent, LANES, 1).collect()
    last = tf.fill([LANES, 2], test_gae.LAST)
    unroll = unroll._replace(trajectory=unroll.trajectory._replace(step_type=last))
    before = [variable.numpy() for variable in agent.policy.variables()]
    loss = agent.train(unroll)
    assert loss.loss.numpy() == 0.0
    for variable, value in zip(agent.policy.variables(), before):
        np.testing.assert_array_equal(variable, value)


def test_a_value_is_learned_for_a_truncated_end_from_the_final_observation():
    # Two steps per episode: the second is truncated, its final observation is worth much.
    _, agent = make(gamma=0.5, gae_lambda=1.0, epochs=1, minibatch_size=100)
    unroll = unrolls.Collector(agent, 1, 3).collect()
    trajectory = unroll.trajectory._replace(
        step_type=tf.constant([[0, 1, 2, 0]]),
        next_step_type=tf.constant([[1, 2, 0, 0]]),
        reward=tf.constant([[1.0, 2.0, 0.0, 0.0]]),
        discount=tf.constant([[1.0, 1.0, 1.0, 0.0]]),
    )
    values = agent._network(trajectory.observation)[0].value.numpy()[0]
    seen = []
    agent._loss_of, real = lambda f, **k: (seen.append(f), real(f, **k))[1], agent._loss_of
    agent.loss(unroll._replace(trajectory=trajectory))
    second = 2.0 + 0.5 * values[2]
    np.testing.assert_allclose(seen[0].value_target, [1.0 + 0.5 * second, second], rtol=1e-5)


@pytest.mark.parametrize("direction, rate", [(2.0, 0.05), (0.5, 0.0)])
def test_the_kl_penalty_adapts_to_the_step_length(direction, rate):
    _, agent = make(clip_ratio=None, kl_penalty=1.0, kl_target=1e-3, learning_rate=rate, epochs=4)
    collector = unrolls.Collector(agent, LANES, LENGTH)
    kl = agent.train(collector.collect()).extra.kl.numpy()
    assert (kl > 1.5e-3) if direction > 1 else (kl < 1e-3 / 1.5)
    assert agent._kl_penalty.weight.numpy() == direction


def test_a_step_that_moved_too_far_ends_the_epochs():
    def minibatches(max_kl):
        _, agent = make(max_kl=max_kl, learning_rate=0.05, epochs=4, minibatch_size=8)
        unroll = unrolls.Collector(agent, LANES, LENGTH).collect()
        counted = Counted(agent, 2)
        counted.counts.scatter_add = lambda slices: None  # Only the number matters here.
        agent.train(unroll)
        return counted.minibatches.numpy()

    assert 1 < minibatches(1e-3) < minibatches(1e6)


def test_a_minibatch_that_finds_the_policy_moved_too_far_is_not_applied():
    """The first minibatch meets the policy that acted; the second one what the first has made."""

    def iterations(max_kl, graph):
        _, agent = make(max_kl=max_kl, learning_rate=0.05, epochs=4, minibatch_size=1_000)
        unroll = unrolls.Collector(agent, LANES, LENGTH).collect()
        (train_function(agent) if graph else agent.train)(unroll)
        return agent._optimizer.iterations.numpy()

    for graph in (True, False):
        assert iterations(1e-9, graph) == 1
        assert iterations(1e6, graph) == 4


def test_the_learning_rate_falls_with_environment_steps():
    world, agent = make(
        learning_rate=0.1, learning_rate_end=0.0, learning_rate_decay_steps=100, epochs=1
    )
    unroll = unrolls.Collector(agent, LANES, LENGTH).collect()
    world.environment_step.assign(100)
    before = [variable.numpy() for variable in agent.policy.variables()]
    agent.train(unroll)
    for variable, value in zip(agent.policy.variables(), before):
        np.testing.assert_array_equal(variable, value)
    world.environment_step.assign(50)
    agent.train(unroll)
    moved = [np.abs(v - b).max() for v, b in zip(agent.policy.variables(), before)]
    assert 0.01 < max(moved) < 0.2


def test_statistics_are_those_of_the_data_and_travel_with_checkpoint_and_export(tmp_path):
    options = {"normalize_observations": True, "normalize_rewards": True}
    _, agent = make("continuous", **options)
    collector = unrolls.Collector(agent, LANES, LENGTH)
    train = train_function(agent)
    collected = [collector.collect(scale) for scale in (1.0, 5.0)]
    for unroll in collected:
        train(unroll)
    observed = np.concatenate(
        [unroll.trajectory.observation[:, :-1].numpy().reshape(-1, 4) for unroll in collected]
    )
    (moments,) = agent._observation_normalizer._moments
    np.testing.assert_allclose(moments.mean, observed.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moments.variance, observed.var(axis=0), rtol=1e-4, atol=1e-5)
    returns = agent._reward_normalizer.moments
    assert 0 < returns.count.numpy() < 2 * LANES * LENGTH

    for policy in (agent.policy, agent.collect_policy):
        held = {variable.ref() for variable in policy.variables()}
        for statistics in (moments, returns):
            assert {v.ref() for v in statistics.variables} <= held

    path = tf.train.Checkpoint(agent=agent).save(str(tmp_path / "checkpoint"))
    _, other = make("continuous", **options)
    train_function(other).get_concrete_function(collected[0])  # Makes the optimizer's variables.
    tf.train.Checkpoint(agent=other).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other._observation_normalizer._moments[0].mean, moments.mean)
    np.testing.assert_array_equal(
        other._reward_normalizer.running, agent._reward_normalizer.running
    )

    greedy = greedy_policy.GreedyPolicy(agent.policy)
    policy_saver.PolicySaver(greedy).save(str(tmp_path / "greedy"))
    loaded = tf.saved_model.load(str(tmp_path / "greedy"))
    step = ts.restart(collected[1].trajectory.observation[:, 0], batch_size=LANES)
    expected = greedy.action(step).action.numpy()
    np.testing.assert_allclose(loaded.action(step, ()).action, expected, atol=1e-6)
    assert len(np.unique(expected[:, 0])) > 1
    # The statistics are inside: with others the same observations give other actions.
    moments.mean.assign_add(moments.mean)
    assert not np.allclose(greedy.action(step).action, expected, rtol=1e-3)
    shapes = [tuple(variable.shape) for variable in loaded.model_variables]
    assert len(shapes) == len(agent.policy.variables())


@pytest.mark.parametrize("action, memory", [("multi-discrete", {}), ("nested", MEMORY)])
def test_the_greedy_policy_is_the_same_exported(action, memory, tmp_path):
    _, agent = make(action, **memory)
    greedy = greedy_policy.GreedyPolicy(agent.policy)
    policy_saver.PolicySaver(greedy).save(str(tmp_path / "greedy"))
    loaded = tf.saved_model.load(str(tmp_path / "greedy"))
    step = tensor_spec.sample_spec_nest(agent.time_step_spec, outer_dims=(5,))
    state = greedy.get_initial_state(5)
    expected = greedy.action(step, state).action
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        loaded.action(step, state).action,
        expected,
    )


def test_environments_get_actions_within_bounds_and_the_learner_what_was_drawn():
    _, agent = make("continuous", initial_stddev=3.0)
    unroll = unrolls.Collector(agent, 20, 10).collect()
    action = unroll.trajectory.action.numpy()[:, :-1]
    raw = unroll.trajectory.policy_info[unroll_policy.RAW_ACTION].numpy()[:, :-1]
    low, high = ACTIONS["continuous"].minimum, ACTIONS["continuous"].maximum
    assert (action >= low).all() and (action <= high).all()
    scaled = (high + low) / 2 + raw * (high - low) / 2
    assert np.mean((scaled < low) | (scaled > high)) > 0.3
    np.testing.assert_allclose(action, np.clip(scaled, low, high), rtol=1e-5, atol=1e-6)
    log_probability = unroll.trajectory.policy_info[experience.LOG_PROBABILITY].numpy()
    parameters = agent._network(unroll.trajectory.observation)[0].parameters.numpy()[:, :-1]
    mean, stddev = parameters[..., :2], np.exp(parameters[..., 2:])
    density = -0.5 * ((raw - mean) / stddev) ** 2 - np.log(stddev * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(log_probability[:, :-1], density.sum(axis=-1), rtol=1e-4)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"epochs": 0}, "epochs"),
        ({"minibatch_size": 0}, "minibatch_size"),
        ({"gae_lambda": 1.5}, "gae_lambda"),
        ({"clip_ratio": 0.0}, "clip_ratio"),
        ({"entropy_weight": -0.1}, "entropy_weight"),
        ({"kl_penalty": 0.0}, "kl_penalty"),
        ({"max_kl": 0.0}, "max_kl"),
        ({"clip_ratio": None}, "nothing holds PPO"),
        ({"learning_rate_end": 0.0}, "belong together"),
        ({"gamma": 1.5}, "gamma"),
        ({"kl_target": 0.02}, "ppo.kl_target is 0.02, but has no effect without ppo.kl_penalty"),
        ({"observation_limit": 5.0}, "no effect without ppo.normalize_observations"),
        ({"reward_limit": 5.0}, "no effect without ppo.normalize_rewards"),
    ],
)
def test_values_that_cannot_work_are_configuration_errors(options, match):
    with pytest.raises(errors.ConfigError, match=match):
        make(**options)


def test_weights_are_refused():
    _, agent = make()
    unroll = unrolls.Collector(agent, LANES, LENGTH).collect()
    with pytest.raises(errors.SpecMismatchError, match="takes no weights"):
        agent.train(unroll, weights=tf.ones([LANES]))


@pytest.mark.parametrize("target", [0.0, 0.1, -1234.5])
def test_of_constant_targets_nothing_is_explained(target):
    ones = tf.ones([50])
    frames = ppo_loss.Frames(ones, ones, target * ones, ones, ones)
    _, info = ppo_loss.PPOLoss(clip_ratio=0.2)(frames, ones, ones, ones)
    assert info.explained_variance == 0.0
