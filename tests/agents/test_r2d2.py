"""R2D2 alone: how it acts, what it learns from, and what flows where."""

import types

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.agents import algorithm, r2d2, r2d2_policy
from actor_learner.inference import graph
from actor_learner.support import errors

FIRST, MID, LAST = 0, 1, 2
B = tensor_spec.BoundedTensorSpec
VECTOR = B([3], tf.float32, -1, 1)
ACTION = B([], tf.int64, 2, 5)  # Not from zero, so that nobody takes actions for indices.
SMALL = {"fc_layer_params": (6,), "lstm_size": 5, "head_layer_params": (4,)}
LENGTH = 8


def make_world(observation=VECTOR, action=ACTION, **lanes):
    return algorithm.World(
        ts.time_step_spec(observation),
        action,
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
        **lanes,
    )


def make_agent(observation=VECTOR, **settings):
    built = r2d2.r2d2(make_world(observation), **{**SMALL, "burn_in": 0, **settings})
    built.agent.initialize()
    return built.agent


def copy_weights(source, target):
    for to, value in zip(target._q_network.variables, source._q_network.variables):
        to.assign(value)
    target.initialize()


def sequences_for(agent, batch=4, first=(), seed=0):
    """Random sequences; those rows of the batch in `first` begin an episode, the last one ends."""
    random = np.random.default_rng(seed)
    spec = agent.collect_data_spec
    info = {k: v for k, v in spec.policy_info.items() if k != experience.STATE}
    trajectory = tensor_spec.sample_spec_nest(
        spec._replace(policy_info=info), outer_dims=(batch, LENGTH), seed=seed
    )
    step_type = np.full((batch, LENGTH), MID, np.int32)
    step_type[list(first), 0] = FIRST
    step_type[-1, 5:] = LAST
    mask = np.ones((batch, LENGTH), np.float32)
    mask[-1, 6:] = 0
    discount = np.ones((batch, LENGTH), np.float32)
    discount[-1, 4] = 0
    state = tf.nest.map_structure(
        lambda leaf: tf.constant(random.normal(size=[batch, *leaf.shape]), leaf.dtype),
        spec.policy_info[experience.STATE],
    )
    return experience.Sequence(
        trajectory._replace(
            step_type=tf.constant(step_type),
            discount=tf.constant(discount),
            reward=tf.constant(random.normal(size=(batch, LENGTH)), tf.float32),
        ),
        state,
        tf.constant(mask),
    )


def gradients(agent, sequence, weights=None):
    with tf.GradientTape() as tape:
        loss = agent.loss(sequence, weights).loss
    return tape.gradient(loss, agent._q_network.trainable_variables)


def assert_equal_gradients(found, expected):
    assert any(np.abs(gradient).max() > 1e-3 for gradient in expected)
    for ours, reference in zip(found, expected):
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "observation, settings",
    [
        (B([12, 12, 3], tf.uint8, 0, 255), {}),
        ({"a": VECTOR, "b": B([], tf.int64, 0, 3)}, {"dueling": False, "lstm_size": None}),
        (VECTOR, {"burn_in": 3, "gradient_clipping": None, "value_rescaling": False}),
    ],
)
def test_it_acts_and_trains_on_the_observation(observation, settings):
    agent = make_agent(observation, **settings)
    before = [variable.numpy() for variable in agent._q_network.trainable_variables]
    train = tf.function(agent.train, autograph=False)
    loss_info = train(sequences_for(agent), tf.ones([4]))
    assert np.isfinite(loss_info.loss) and loss_info.extra.priorities.shape == [4]
    after = [variable.numpy() for variable in agent._q_network.trainable_variables]
    assert all((b != a).any() for b, a in zip(before, after))

    stream = graph.GraphInference(agent.collect_policy, num_lanes=3)
    step = tensor_spec.sample_spec_nest(agent.time_step_spec, outer_dims=(3,))
    actions = stream.act(tf.nest.map_structure(lambda leaf: leaf.numpy(), step)).action
    assert actions.shape == (3,) and (actions >= 2).all() and (actions <= 5).all()


def test_the_loss_is_the_weighted_error_of_the_double_q_target():
    agent = make_agent(gamma=0.9, n_step=3, value_rescaling=False, burn_in=2)
    other = make_agent()
    for variable, value in zip(agent._target_network.variables, other._q_network.variables):
        variable.assign(value)  # Far from the online network.
    sequence = sequences_for(agent, first=(1,))
    weights = np.array([1.0, 0.5, 0.25, 2.0], np.float32)
    found = agent.loss(sequence, tf.constant(weights))

    trajectory = tf.nest.map_structure(lambda leaf: leaf.numpy(), sequence.trajectory)
    arguments = {"step_type": trajectory.step_type, "network_state": sequence.state}
    values = agent._q_network(trajectory.observation, **arguments)[0].numpy()
    targets = agent._target_network(trajectory.observation, **arguments)[0].numpy()
    errors_of = [[] for _ in range(4)]
    for row in range(4):
        for t in range(LENGTH - 1):
            if trajectory.step_type[row, t] == LAST or (t < 2 and row != 1):
                continue
            target, factor, k = 0.0, 1.0, t
            while k < min(t + 3, LENGTH - 1) and trajectory.step_type[row, k] != LAST:
                target += factor * trajectory.reward[row, k]
                factor *= 0.9 * trajectory.discount[row, k]
                k += 1
            target += factor * targets[row, k, values[row, k].argmax()]
            errors_of[row].append(target - values[row, t, trajectory.action[row, t] - 2])
    total = sum(w * 0.5 * np.square(e).sum() for w, e in zip(weights, errors_of))
    np.testing.assert_allclose(found.loss, total / sum(map(len, errors_of)), rtol=1e-5)
    priorities = [0.9 * np.abs(e).max() + 0.1 * np.abs(e).mean() for e in errors_of]
    np.testing.assert_allclose(found.extra.priorities, priorities, rtol=1e-4, atol=1e-5)


def test_the_slope_of_the_rescaling_is_a_setting():
    agent, same = make_agent(n_step=1, rescaling_epsilon=0.3), make_agent(n_step=1)
    sequence = tf.nest.map_structure(lambda leaf: leaf.numpy(), sequences_for(agent, first=(0,)))
    ends = np.full_like(sequence.trajectory.discount, 0.0)  # Targets are h(reward).
    info = dict.fromkeys((r2d2_policy.Q_TAKEN, r2d2_policy.Q_BEST), np.zeros_like(ends))
    reward = np.full_like(ends, 99.0)
    sequence = sequence._replace(
        trajectory=sequence.trajectory._replace(discount=ends, reward=reward, policy_info=info)
    )
    np.testing.assert_allclose(agent.initial_priorities(sequence), 9.0 + 0.3 * 99, rtol=1e-5)
    np.testing.assert_allclose(same.initial_priorities(sequence), 9.0 + 0.001 * 99, rtol=1e-5)


def test_no_gradient_flows_through_burn_in():
    agent, plain = make_agent(burn_in=3), make_agent(burn_in=0)
    copy_weights(agent, plain)
    sequence = sequences_for(agent)
    trajectory = sequence.trajectory
    before = tf.nest.map_structure(lambda leaf: leaf[:, :3], trajectory)
    _, state = agent._q_network(
        before.observation, step_type=before.step_type, network_state=sequence.state
    )
    rest = tf.nest.map_structure(lambda leaf: leaf[:, 3:], trajectory)
    cut = experience.Sequence(rest, tf.nest.map_structure(tf.stop_gradient, state),
                              sequence.mask[:, 3:])  # fmt: skip
    # The target network is a copy still, so that its state after burn-in is the same one.
    np.testing.assert_allclose(agent.loss(sequence).loss, plain.loss(cut).loss, rtol=1e-5)
    assert_equal_gradients(gradients(agent, sequence), gradients(plain, cut))


def test_a_sequence_that_begins_an_episode_is_learned_from_in_full():
    agent, plain = make_agent(burn_in=3), make_agent(burn_in=0)
    copy_weights(agent, plain)
    sequence = sequences_for(agent, first=range(4))
    np.testing.assert_allclose(agent.loss(sequence).loss, plain.loss(sequence).loss, rtol=1e-6)
    assert_equal_gradients(gradients(agent, sequence), gradients(plain, sequence))


def test_the_target_network_is_a_copy_from_time_to_time():
    agent = make_agent(target_update_period=3, learning_rate=0.1)
    sequence = sequences_for(agent)

    def differs():
        pairs = zip(agent._q_network.variables, agent._target_network.variables)
        return any((online.numpy() != target.numpy()).any() for online, target in pairs)

    assert not differs()
    seen = []
    for _ in range(6):
        agent.train(sequence)
        seen.append(differs())
    assert seen == [True, True, False, True, True, False]
    assert agent.train_step_counter.numpy() == 6


def test_gradients_are_clipped_by_their_global_norm():
    agent = make_agent(gradient_clipping=0.01)
    sequence = sequences_for(agent)
    applied = []
    agent._optimizer = types.SimpleNamespace(
        apply_gradients=lambda pairs, **_: applied.extend(pairs)
    )
    agent.train(sequence)
    np.testing.assert_allclose(tf.linalg.global_norm([g for g, _ in applied]), 0.01, rtol=1e-4)


def test_epsilons_are_shared_out_over_the_lanes_of_all_actors():
    expected = 0.4 ** np.linspace(1, 8, 12)
    for first in (0, 4, 8):
        world = make_world(first_lane=first, num_lanes=4, total_lanes=12)
        built = r2d2.r2d2(world, **SMALL)
        np.testing.assert_allclose(
            built.agent.collect_policy.epsilons, expected[first : first + 4], rtol=1e-6
        )
        np.testing.assert_allclose(built.epsilon(), expected[first : first + 4].mean(), rtol=1e-6)


def test_a_single_lane_explores_as_the_last_of_many_does():
    built = r2d2.r2d2(make_world(num_lanes=1, total_lanes=1), **SMALL)
    np.testing.assert_allclose(built.agent.collect_policy.epsilons, [0.4**8], rtol=1e-6)
    # One lane of each of two actors is not a single lane.
    for first, expected in ((0, 0.4), (1, 0.4**8)):
        built = r2d2.r2d2(make_world(first_lane=first, num_lanes=1, total_lanes=2), **SMALL)
        np.testing.assert_allclose(built.agent.collect_policy.epsilons, [expected], rtol=1e-6)


def test_every_lane_explores_as_often_as_its_epsilon_says():
    lanes, steps = 4, 800
    epsilons = np.array([0.0, 0.2, 0.6, 1.0])
    agent = make_agent()
    policy = r2d2_policy.R2d2CollectPolicy(
        agent.time_step_spec, agent.action_spec, agent._q_network, epsilons
    )
    stream = graph.GraphInference(policy, lanes)
    step = ts.TimeStep(
        np.zeros(lanes, np.int32), np.zeros(lanes, np.float32), np.ones(lanes, np.float32),
        np.ones((lanes, 3), np.float32),
    )  # fmt: skip
    # By the actions: a network with nothing but dead units gives all of them the same value.
    values, _ = agent._q_network(step.observation, step_type=step.step_type)
    best = values.numpy()[0].argmax() + 2
    not_best = np.zeros(lanes)
    for _ in range(steps):
        not_best += stream.act(step).action != best
    expected = epsilons * 3 / 4  # One in four random actions is the best one.
    deviation = np.sqrt(expected * (1 - expected) / steps)
    assert (np.abs(not_best / steps - expected) <= 4 * deviation + 1e-9).all()


def test_the_two_draws_of_an_action_have_seeds_of_their_own(monkeypatch):
    seeds = []
    uniform = tf.random.uniform

    def spy(*args, seed=None, **options):
        seeds.append(seed)
        return uniform(*args, seed=seed, **options)

    policy = make_agent().collect_policy
    step = ts.restart(tf.ones([2, 3]), batch_size=2)
    monkeypatch.setattr(tf.random, "uniform", spy)
    policy.action(step, policy.get_initial_state(2), seed=7)
    policy.action(step, policy.get_initial_state(2), seed=7)
    first, second, *again = seeds
    assert None not in (first, second) and first != second and again == [first, second]
    seeds.clear()
    policy.action(step, policy.get_initial_state(2))
    assert seeds == [None, None]


def test_the_info_holds_the_state_before_the_step_and_the_values_it_gave():
    agent = make_agent()
    lanes = 2
    stream = graph.GraphInference(agent.collect_policy, lanes)
    random = np.random.default_rng(0)
    state = agent.collect_policy.get_initial_state(lanes)
    for kinds in ([FIRST, FIRST], [MID, MID], [MID, LAST], [MID, FIRST], [MID, MID]):
        step = ts.TimeStep(
            np.array(kinds, np.int32), np.zeros(lanes, np.float32), np.ones(lanes, np.float32),
            random.normal(size=(lanes, 3)).astype(np.float32),
        )  # fmt: skip
        response = stream.act(step)
        first = np.array(kinds)[:, None] == FIRST
        state = [np.where(first, 0.0, leaf) for leaf in state]
        for found, expected in zip(response.policy_info[experience.STATE], state):
            np.testing.assert_allclose(found, expected, atol=1e-6)
        values, state = agent._q_network(
            step.observation, network_state=tuple(tf.constant(leaf, tf.float32) for leaf in state)
        )
        taken = values.numpy()[np.arange(lanes), response.action - 2]
        np.testing.assert_allclose(response.policy_info[r2d2_policy.Q_TAKEN], taken, atol=1e-6)
        best = values.numpy().max(axis=1)
        np.testing.assert_allclose(response.policy_info[r2d2_policy.Q_BEST], best, atol=1e-6)


def test_the_policy_for_evaluation_takes_the_best_action_with_its_memory():
    agent = make_agent(epsilon_base=1.0)
    stream = graph.GraphInference(agent.policy, 5)
    random = np.random.default_rng(0)
    state = agent._q_network.get_initial_state(5)
    for kind in (FIRST, MID, MID):
        step = ts.TimeStep(
            np.full(5, kind, np.int32), np.zeros(5, np.float32), np.ones(5, np.float32),
            random.normal(size=(5, 3)).astype(np.float32),
        )  # fmt: skip
        values, state = agent._q_network(step.observation, network_state=state)
        np.testing.assert_array_equal(stream.act(step).action, values.numpy().argmax(1) + 2)


def test_the_collect_policy_can_be_exported_and_remembers(tmp_path):
    agent = make_agent()
    policy_saver.PolicySaver(agent.collect_policy).save(str(tmp_path / "policy"))
    loaded = tf.saved_model.load(str(tmp_path / "policy"))
    step = tensor_spec.sample_spec_nest(agent.time_step_spec, outer_dims=(3,))
    step = step._replace(step_type=tf.ones([3], tf.int32))
    state = agent.collect_policy.get_initial_state(3)
    stepped = loaded.action(step, state)
    assert stepped.action.shape == (3,)
    expected = agent.policy.action(step, state).state
    for found, reference in zip(tf.nest.flatten(stepped.state), tf.nest.flatten(expected)):
        np.testing.assert_allclose(found, reference, atol=1e-6)


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"n_step": 0}, "n_step"),
        ({"gamma": 1.5}, "gamma"),
        ({"epsilon_base": 1.5}, "epsilon_base"),
        ({"epsilon_exponents": (-1.0, 2.0)}, "epsilon_exponents"),
        ({"target_update_period": 0}, "target_update_period"),
    ],
)
def test_values_that_cannot_work_are_configuration_errors(settings, match):
    with pytest.raises(errors.ConfigError, match=match):
        r2d2.r2d2(make_world(), **SMALL, **settings)


def test_burn_in_that_leaves_nothing_to_learn_is_refused():
    agent = make_agent(burn_in=7)
    with pytest.raises(errors.ConfigError, match="burn_in is 7 and SequenceReplay.*8"):
        agent.loss(sequences_for(agent))


def test_continuous_actions_are_refused():
    with pytest.raises(errors.SpecMismatchError, match="one discrete action"):
        r2d2.r2d2(make_world(action=B([2], tf.float32, -1, 1)))
