"""Behavioural cloning and CQL-SAC on recorded experience, with no environment."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents.sac import sac_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.agents import algorithm, bc, cql_sac
from actor_learner.agents.networks import network_variables
from actor_learner.inference import graph
from actor_learner.learning import learner
from actor_learner.replay.recording import experience_recorder
from actor_learner.replay.server import server
from actor_learner.replay.streams import recorded_replay, sample_stream
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
OBSERVATION = B([3], tf.float32, -1.0, 1.0)
DISCRETE = B([], tf.int64, 2, 4)
CONTINUOUS = B([2], tf.float32, [-2.0, -1.0], [2.0, 1.0])


def expert(action_spec, observation):
    """What the expert does: a choice by where the observation lies, or a linear function of it."""
    if action_spec.dtype.is_integer:
        return 2 + np.argmax(observation, axis=-1)
    clipped = np.clip(observation[..., :2] * [3.0, -0.5], [-2.0, -1.0], [2.0, 1.0])
    return clipped.astype(np.float32)


def record_expert(directory, action_spec, rows=400, lanes=4, episode=10):
    """Records an expert whose boundary steps hold random actions, as those of actors do."""
    generator = np.random.default_rng(0)
    step = ts.time_step_spec(OBSERVATION)
    spec = trajectory_lib.Trajectory(
        step.step_type, OBSERVATION, action_spec,
        {"log_probability": tf.TensorSpec([], tf.float32)},
        step.step_type, step.reward, step.discount,
    )  # fmt: skip
    with experience_recorder.ExperienceRecorder(directory, spec, lanes) as recorder:
        for row in range(rows):
            at = row % episode
            kind, following = ((0, 1), (1, 1), (1, 2), (2, 0))[
                0 if at == 0 else 3 if at == episode - 1 else 2 if at == episode - 2 else 1
            ]
            observation = generator.uniform(-1, 1, size=(lanes, 3)).astype(np.float32)
            action = expert(action_spec, observation)
            if kind == 2:
                action = np.broadcast_to(np.asarray(action_spec.minimum), action.shape)
            recorder(
                trajectory_lib.Trajectory(
                    np.full(lanes, kind, np.int32),
                    observation,
                    action.astype(action_spec.dtype.as_numpy_dtype),
                    {"log_probability": np.zeros(lanes, np.float32)},
                    np.full(lanes, following, np.int32),
                    observation[:, 0],
                    np.full(lanes, 0.0 if following == 2 else 1.0, np.float32),
                )
            )


class Offline:
    """An agent built from a recording alone, and the batches to train it on."""

    def __init__(self, builder, directory, **options):
        self.replay = recorded_replay.RecordedReplay(str(directory))
        time_step_spec, action_spec = self.replay.specs()
        self.train_step = tf.Variable(0, dtype=tf.int64)
        world = algorithm.World(time_step_spec, action_spec, self.train_step, self.train_step)
        self.algorithm = builder(world, **options)
        self.agent = self.algorithm.agent
        self.experience = sample_stream.Experience(
            self.agent.collect_data_spec, 1, self.algorithm.n_step, self.algorithm.gamma
        )
        self.server = server.ReplayServer(self.replay.tables(self.experience))
        self.replay.fill(self.experience, self.server.client())

    def dataset(self):
        return self.replay.dataset(self.experience, self.server.address, 64, 10.0)

    def learn(self, root_dir, iterations):
        with learner.Learner(
            str(root_dir), self.train_step, self.agent, self.dataset, summary_interval=0
        ) as trained:
            trained.run(iterations=iterations)

    def act(self, observation):
        lanes = len(observation)
        ones = np.ones(lanes, np.float32)
        step = ts.TimeStep(np.ones(lanes, np.int32), 0 * ones, ones, observation)
        return graph.GraphInference(self.agent.policy, lanes).act(step).action


@pytest.fixture
def build(tmp_path):
    made = []

    def make(builder, action_spec, **options):
        record_expert(tmp_path / "recorded", action_spec)
        made.append(Offline(builder, tmp_path / "recorded", **options))
        return made[-1]

    yield make
    for each in made:
        each.server.stop()


def test_cloning_reproduces_the_choices_of_an_expert(build, tmp_path):
    training = build(bc.bc, DISCRETE, fc_layer_params=(32,), learning_rate=1e-2)
    training.learn(tmp_path / "run", iterations=400)
    observation = np.random.default_rng(1).uniform(-1, 1, size=(500, 3)).astype(np.float32)
    agreed = training.act(observation) == expert(DISCRETE, observation)
    assert np.mean(agreed) > 0.95


def test_cloning_reproduces_the_continuous_actions_of_an_expert(build, tmp_path):
    training = build(bc.bc, CONTINUOUS, fc_layer_params=(32,), learning_rate=1e-2)
    training.learn(tmp_path / "run", iterations=400)
    observation = np.random.default_rng(1).uniform(-1, 1, size=(500, 3)).astype(np.float32)
    error = np.abs(training.act(observation) - expert(CONTINUOUS, observation))
    assert error.mean() < 0.1


def test_cloning_applies_weights_and_looks_at_first_steps_only():
    world = algorithm.World(ts.time_step_spec(OBSERVATION), CONTINUOUS, *_counters())
    agent = bc.bc(world, fc_layer_params=(8,)).agent
    batch = tensor_spec.sample_spec_nest(agent.collect_data_spec, seed=0, outer_dims=(4, 2))
    action, _ = agent.inner.cloning_network(batch.observation[:, 0])
    half_range = np.array([2.0, 1.0])
    errors_ = np.mean((batch.action[:, 0] / half_range - action) ** 2, axis=-1)
    weights = np.array([1.0, 0.0, 0.5, 2.0], np.float32)
    loss = agent.loss(batch, weights=tf.constant(weights))
    np.testing.assert_allclose(loss.loss, np.mean(weights * errors_), rtol=1e-5)
    np.testing.assert_allclose(loss.extra.loss, errors_, rtol=1e-5)
    other = batch._replace(action=tf.stack([batch.action[:, 0], -batch.action[:, 1]], axis=1))
    np.testing.assert_allclose(agent.loss(other).loss, np.mean(errors_), rtol=1e-5)


def masked_world():
    masked = {"observation": OBSERVATION, "action_mask": B([3], tf.int8, 0, 1)}
    return algorithm.World(ts.time_step_spec(masked), DISCRETE, *_counters())


def test_a_clone_never_takes_an_illegal_action():
    with network_variables.of_any_integers():
        agent = bc.bc(masked_world(), fc_layer_params=(8,)).agent
    random = np.random.default_rng(0)
    legal = random.uniform(size=(200, 3)) < 0.5
    legal[:, 1] = True
    observation = {
        "observation": tf.constant(random.uniform(-1, 1, (200, 3)), tf.float32),
        "action_mask": tf.constant(legal, tf.int8),
    }
    step = ts.restart(observation, batch_size=200)
    for policy in (agent.policy, agent.collect_policy):
        action = policy.action(step).action.numpy()
        assert legal[np.arange(200), action - 2].all()


def test_a_clone_that_would_explore_illegally_is_refused():
    with pytest.raises(errors.ConfigError, match="bc.epsilon is 0.1.*action_mask"):
        bc.bc(masked_world(), epsilon=0.1)


def test_cloning_refuses_actions_that_it_cannot_clone():
    several = B([2], tf.int64, 0, 3)
    with pytest.raises(errors.SpecMismatchError, match="one discrete action"):
        bc.bc(algorithm.World(ts.time_step_spec(OBSERVATION), several, *_counters()))


SMALL = {"actor_fc_layer_params": (16,), "critic_fc_layer_params": (16,)}


def test_cql_sac_trains_on_recorded_experience(build):
    training = build(cql_sac.cql_sac, CONTINUOUS, cql_samples=3, cloning_steps=2, **SMALL)
    training.agent.initialize()
    before = [v.numpy() for v in training.agent.policy.variables()]
    for batch, _ in training.dataset().take(4):
        loss = training.agent.train(batch)
    assert np.isfinite(loss.loss) and np.isfinite(loss.extra.cql_loss)
    assert training.algorithm.priorities(loss).shape == (64,)
    after = [v.numpy() for v in training.agent.policy.variables()]
    assert all((a != b).any() for a, b in zip(after, before))


def test_cql_sac_first_clones_and_then_improves():
    agent = cql_agent(cloning_steps=1)
    batch = tensor_spec.sample_spec_nest(agent.collect_data_spec, seed=0, outer_dims=(8, 2))
    time_steps = agent._as_transition(batch).time_step
    # Far from one bound and at another, where a squashed density has no value.
    actions = tf.tile([[0.5, 1.0]], [8, 1])

    def loss_and_gradient(actions):
        with tf.GradientTape() as tape:
            tf.random.set_seed(3)
            loss = agent.actor_loss(time_steps, actions)
        gradient = tape.gradient(loss, agent._actor_network.trainable_variables[0])
        return float(loss), gradient.numpy()

    cloning, gradient = loss_and_gradient(actions)
    assert np.isfinite(cloning) and np.isfinite(gradient).all()
    assert cloning != loss_and_gradient(-actions)[0]
    agent.train_step_counter.assign(1)
    improving, _ = loss_and_gradient(actions)
    assert improving == loss_and_gradient(-actions)[0]
    tf.random.set_seed(3)
    assert improving == pytest.approx(
        float(sac_agent.SacAgent.actor_loss(agent, time_steps)), rel=1e-5
    )


def cql_agent(**options):
    world = algorithm.World(ts.time_step_spec(OBSERVATION), CONTINUOUS, *_counters())
    return cql_sac.cql_sac(world, **{**SMALL, **options}).agent.inner  # It works in [-1, 1].


def test_the_conservative_loss_equals_a_numpy_reference(monkeypatch):
    agent, batch, samples = cql_agent(cql_samples=4), 5, 4
    generator = np.random.default_rng(0)
    sampled = generator.uniform(-1, 1, size=(batch, samples, 2)).astype(np.float32)
    log_density = generator.normal(size=(batch, samples)).astype(np.float32)
    uniform = generator.uniform(-1, 1, size=(batch, samples, 2)).astype(np.float32)
    time_steps = tensor_spec.sample_spec_nest(agent.time_step_spec, seed=1, outer_dims=(batch,))
    monkeypatch.setattr(
        agent,
        "_sample_and_transpose_actions_and_log_probs",
        lambda *args, **kwargs: (tf.constant(sampled), tf.constant(log_density)),
    )
    monkeypatch.setattr(tf.random, "uniform", lambda *args: tf.constant(uniform))
    actions = generator.uniform(-1, 1, size=(batch, 2)).astype(np.float32)
    gaps = []
    for critic in (agent._critic_network_1, agent._critic_network_2):
        for b in range(batch):
            observation = time_steps.observation[b : b + 1]
            total = 0.0
            for k in range(samples):
                for action, density in (
                    (sampled[b, k], np.exp(log_density[b, k])),
                    (uniform[b, k], 1.0 / (2.0 * 2.0)),
                ):
                    value = float(critic((observation, action[None]))[0][0])
                    total += np.exp(value) / density
            gaps.append(np.log(total) - float(critic((observation, actions[b : b + 1]))[0][0]))
    loss = agent._cql_loss(time_steps, tf.constant(actions))
    np.testing.assert_allclose(loss, np.mean(gaps), atol=1e-5)


@pytest.mark.parametrize(
    "options, match",
    [({"cql_alpha": 0.0}, "cql_alpha"), ({"cql_samples": 0}, "cql_samples")],
)
def test_values_that_cannot_work_are_configuration_errors(options, match):
    with pytest.raises(errors.ConfigError, match=match):
        cql_agent(**options)


def _counters():
    return tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
