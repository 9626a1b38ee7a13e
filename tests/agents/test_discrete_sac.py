"""Discrete SAC's losses against plain NumPy, with and without a mask."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from actor_learner.agents import algorithm, sac
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
BATCH, ACTIONS = 6, 4
GAMMA, SHARE = 0.9, 0.5


def make_agent(masked, **options):
    tf.keras.utils.set_random_seed(0)
    observation = B([3], tf.float32, -1, 1)
    if masked:
        observation = {"observation": observation, "action_mask": B([ACTIONS], tf.int8, 0, 1)}
    world = algorithm.World(
        ts.time_step_spec(observation),
        B([], tf.int64, 1, ACTIONS),  # Counted from 1.
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    options = {"gamma": GAMMA, "target_entropy": SHARE, "initial_alpha": 0.3, **options}
    agent = sac.sac(world, actor_fc_layer_params=(8,), critic_fc_layer_params=(8,), **options).agent
    agent.initialize()
    return agent


def make_batch(masked):
    random = np.random.default_rng(0)
    observation = random.uniform(-1, 1, (BATCH, 2, 3)).astype(np.float32)
    legal = random.uniform(size=(BATCH, 2, ACTIONS)) < 0.5
    legal[..., 1] = True
    shown = {"observation": observation, "action_mask": legal.astype(np.int8)}
    batch = trajectory.Trajectory(
        step_type=np.ones((BATCH, 2), np.int32),
        observation=shown if masked else observation,
        action=np.full((BATCH, 2), 2, np.int64),  # The second value, which is always legal.
        policy_info=(),
        next_step_type=np.ones((BATCH, 2), np.int32),
        reward=random.uniform(-1, 1, (BATCH, 2)).astype(np.float32),
        discount=random.integers(0, 2, (BATCH, 2)).astype(np.float32),
    )
    legal = legal if masked else np.ones_like(legal)
    return tf.nest.map_structure(tf.constant, batch), observation, legal


def reference(agent, batch, observation, legal, weights):
    """The losses by the definition in the agent's docstring, state by state."""
    alpha = float(np.exp(agent._log_alpha))

    def policy(state, allowed):
        logits = agent._actor(state[np.newaxis])[0].numpy()[0][allowed]
        exponentials = np.exp(logits - logits.max())
        return exponentials / exponentials.sum()

    def values(critics, state, allowed):
        return np.min([c(state[np.newaxis])[0].numpy()[0][allowed] for c in critics], axis=0)

    critic = actor = temperature = 0.0
    for row in range(BATCH):
        now, then = observation[row]
        p = policy(then, legal[row, 1])
        q = values(agent._target_critics, then, legal[row, 1])
        value = (p * (q - alpha * np.log(p))).sum()
        target = batch.reward.numpy()[row, 0] + GAMMA * batch.discount.numpy()[row, 0] * value
        for one in agent._critics:
            taken = one(now[np.newaxis])[0].numpy()[0][1]
            critic += weights[row] * (target - taken) ** 2
        p = policy(now, legal[row, 0])
        q = values(agent._critics, now, legal[row, 0])
        actor -= weights[row] * (p * (q - alpha * np.log(p))).sum()
        entropy = -(p * np.log(p)).sum()
        wanted = SHARE * np.log(legal[row, 0].sum())
        temperature -= weights[row] * np.log(alpha) * (wanted - entropy)
    return np.array([critic, actor, temperature]) / BATCH


@pytest.mark.parametrize("masked", [False, True])
def test_the_losses_are_those_of_their_definition(masked):
    agent = make_agent(masked)
    batch, observation, legal = make_batch(masked)
    weights = np.linspace(0.5, 1.5, BATCH).astype(np.float32)
    losses = agent.loss(batch, weights=tf.constant(weights)).extra
    expected = reference(agent, batch, observation, legal, weights)
    found = [losses.critic_loss, losses.actor_loss, losses.alpha_loss]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert losses.td_error.shape == [BATCH]


def test_a_train_step_moves_everything_but_the_targets_little():
    agent = make_agent(True)
    batch, _, _ = make_batch(True)
    before = [v.numpy() for v in agent.variables]
    target = agent._target_critics[0].variables[0].numpy()
    agent.train(batch)
    assert int(agent.train_step_counter) == 1
    assert any((old != new.numpy()).any() for old, new in zip(before, agent.variables))
    expected = 0.995 * target + 0.005 * agent._critics[0].variables[0].numpy()
    np.testing.assert_allclose(agent._target_critics[0].variables[0], expected, rtol=1e-5)


@pytest.mark.parametrize("short_of_entropy", [True, False])
def test_the_entropys_weight_rises_where_there_is_too_little_of_it(short_of_entropy):
    agent = make_agent(False, target_entropy=0.999 if short_of_entropy else 0.001)
    # A policy that is neither uniform nor certain.
    agent._actor.variables[-1].assign([0.5, 0.0, 0.0, 0.0])
    batch, _, _ = make_batch(False)
    before = float(agent._log_alpha)
    agent.train(batch)
    assert (float(agent._log_alpha) > before) == short_of_entropy


def test_actions_are_drawn_as_the_actor_says_and_legal_only():
    agent = make_agent(True)
    lanes = 4_000
    observation = {
        "observation": np.tile(np.array([0.3, -0.2, 0.9], np.float32), (lanes, 1)),
        "action_mask": np.tile(np.array([1, 0, 1, 1], np.int8), (lanes, 1)),
    }
    step = ts.restart(tf.nest.map_structure(tf.constant, observation), batch_size=lanes)
    actions = agent.collect_policy.action(step).action.numpy()
    logits = agent._actor(observation["observation"][:1])[0].numpy()[0][[0, 2, 3]]
    expected = np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(actions, minlength=5)[[1, 3, 4]]
    assert counts.sum() == lanes
    deviation = np.sqrt(lanes * expected * (1 - expected))
    assert (np.abs(counts - lanes * expected) < 4 * deviation).all()


def test_a_share_of_entropy_out_of_range_is_refused():
    with pytest.raises(errors.ConfigError, match="target_entropy is -2.0.*above 0 and below 1"):
        make_agent(False, target_entropy=-2.0)
