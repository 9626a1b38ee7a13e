"""IMPALA, from the actor's unrolls to the gradient step."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.acting import actor
from actor_learner.agents import algorithm, impala, unroll_policy
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.inference import graph
from actor_learner.replay.server import server
from actor_learner.replay.streams import sample_stream, unroll_queue
from actor_learner.support import errors
from tests import counting_environment

B = tensor_spec.BoundedTensorSpec
MID, LAST = 1, 2
SMALL = {"fc_layer_params": (8,)}
SPACES = {
    "discrete": gymnasium.spaces.Discrete(3),
    "multi-discrete": gymnasium.spaces.MultiDiscrete([2, 4]),
    "continuous": gymnasium.spaces.Box(
        np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32)
    ),
}


def make_world(time_step_spec, action_spec):
    return algorithm.World(
        time_step_spec,
        action_spec,
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )


def collect(action_space, num_batches=1, **options):
    """An agent, and batches of unrolls of length 7 that its actor wrote through a real queue."""
    lanes = 3
    env = gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID,
        lanes,
        vectorization="sync",
        make_kwargs={
            "episode_lengths": (2, 5, 1),
            "endings": ("terminated", "truncated"),
            "action_space": action_space,
        },
    )
    world = make_world(
        tensor_spec.from_spec(env.time_step_spec()), tensor_spec.from_spec(env.action_spec())
    )
    built = impala.impala(world, **{**SMALL, **options})
    assert built.kind == experience.UNROLLS
    queue = unroll_queue.UnrollQueue(7, max_queued_batches=num_batches)
    data = sample_stream.Experience(built.agent.collect_data_spec, lanes, built.n_step, built.gamma)
    replay_server = server.ReplayServer(queue.tables(data))
    observer = queue.observer(data, replay_server.client())
    try:
        actor.Actor(
            env,
            built.agent.collect_policy,
            world.train_step,
            group_steps_per_run=7 * num_batches,
            transition_observers=[observer],
        ).run()
        observer.flush()
        dataset = queue.dataset(data, replay_server.address, 64, 10.0)
        batches = [unroll for unroll, _ in dataset.take(num_batches)]
    finally:
        observer.close()
        replay_server.stop()
        env.close()
    return built.agent, batches


@pytest.mark.parametrize(
    "space, options",
    [
        ("discrete", {}),
        ("discrete", {"lstm_size": 6}),
        ("continuous", {"lstm_size": 6}),
        ("multi-discrete", {"share_torso": False}),
    ],
    ids=str,
)
def test_the_learner_finds_the_probabilities_that_the_actor_had(space, options):
    agent, batches = collect(SPACES[space], num_batches=3, **options)
    for unroll in batches:
        loss = agent.loss(unroll)
        steps = tf.nest.map_structure(lambda leaf: leaf[:, :-1], unroll.trajectory)
        outputs, _ = agent._network(
            unroll.trajectory.observation,
            step_type=unroll.trajectory.step_type,
            network_state=unroll.state,
        )
        found = unroll_policy.log_probability(agent._network, outputs.parameters[:, :-1], steps)
        stored = steps.policy_info[experience.LOG_PROBABILITY]
        assert np.unique(stored).size > 1 and (steps.step_type == LAST).numpy().any()
        np.testing.assert_allclose(found, stored, atol=1e-5)
        np.testing.assert_allclose(loss.extra.importance, 1.0, atol=1e-5)
    if "lstm_size" in options:
        # The state matters: with that of an episode's beginning the probabilities are others.
        unroll = batches[1]
        assert (unroll.trajectory.step_type[:, 0] == MID).numpy().all()
        remembered, _ = agent._network(
            unroll.trajectory.observation,
            step_type=unroll.trajectory.step_type,
            network_state=unroll.state,
        )
        forgot, _ = agent._network(
            unroll.trajectory.observation, step_type=unroll.trajectory.step_type
        )
        changed = np.abs(forgot.parameters - remembered.parameters).max(axis=(1, 2))
        assert (changed > 1e-5).all()


def test_one_train_call_is_one_step_that_ignores_what_boundary_rows_hold():
    agent, (unroll,) = collect(SPACES["discrete"])
    before = agent.loss(unroll)
    boundary = (unroll.trajectory.step_type == LAST).numpy()
    assert boundary[:, :-1].any()
    spoiled = unroll.trajectory._replace(
        reward=np.where(boundary, 1e6, unroll.trajectory.reward).astype(np.float32),
        discount=np.where(boundary, 0.5, unroll.trajectory.discount).astype(np.float32),
        policy_info={
            experience.LOG_PROBABILITY: np.where(
                boundary, -30.0, unroll.trajectory.policy_info[experience.LOG_PROBABILITY]
            ).astype(np.float32)
        },
    )
    np.testing.assert_allclose(agent.loss(experience.Unroll(spoiled)).loss, before.loss, rtol=1e-6)
    # Another importance of the boundary rows would show here: exp(30) is large.
    assert agent.loss(experience.Unroll(spoiled)).extra.importance < 1.1
    agent.train(unroll)
    assert agent.train_step_counter == 1


def test_the_loss_is_what_its_parts_say_by_hand():
    agent, (unroll,) = collect(
        SPACES["discrete"], gamma=0.9, value_weight=0.3, entropy_weight=0.2, reward_scale=0.5,
        reward_clipping=1.0,
    )  # fmt: skip
    steps = tf.nest.map_structure(lambda leaf: leaf[:, :-1].numpy(), unroll.trajectory)
    outputs, _ = agent._network(unroll.trajectory.observation)
    value = outputs.value.numpy()
    logits = outputs.parameters.numpy()[:, :-1]
    log_softmax = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    mask = steps.step_type != LAST
    reward = np.clip(0.5 * steps.reward, -1.0, 1.0)
    target = value.copy()  # On policy: n-step returns, up to the end of the episode.
    for t in reversed(range(7)):
        step = reward[:, t] + 0.9 * steps.discount[:, t] * target[:, t + 1]
        target[:, t] = np.where(mask[:, t], step, value[:, t])
    advantage = reward + 0.9 * steps.discount * target[:, 1:] - value[:, :-1]
    chosen = np.take_along_axis(log_softmax, steps.action[..., None], axis=-1)[..., 0]
    entropy = -(np.exp(log_softmax) * log_softmax).sum(axis=-1)
    policy_loss = -(advantage * chosen)[mask].mean()
    value_loss = 0.5 * np.square(target[:, :-1] - value[:, :-1])[mask].mean()
    info = agent.loss(unroll)
    np.testing.assert_allclose(info.extra.policy_loss, policy_loss, rtol=1e-4)
    np.testing.assert_allclose(info.extra.value_loss, value_loss, rtol=1e-4)
    np.testing.assert_allclose(info.extra.entropy, entropy[mask].mean(), rtol=1e-5)
    np.testing.assert_allclose(
        info.loss, policy_loss + 0.3 * value_loss - 0.2 * entropy[mask].mean(), rtol=1e-4
    )


def bandit_unroll(agent, rewards, batch=64, length=4):
    """Unrolls in which action a earns `rewards[a]` and nothing else matters; may be traced."""
    observation = tf.ones([batch, length + 1, 2])
    outputs, _ = agent._network(observation)
    distribution = agent._network.distribution
    flat = tf.reshape(outputs.parameters, [-1, len(rewards)])
    action = tf.reshape(distribution.sample(flat).action, [batch, length + 1])
    log_probability = distribution.log_probability(outputs.parameters, action, None)
    ones = tf.ones([batch, length + 1], tf.int32)
    return experience.Unroll(
        trajectory_lib.Trajectory(
            step_type=ones,
            observation=observation,
            action=action,
            policy_info={experience.LOG_PROBABILITY: log_probability},
            next_step_type=ones,
            reward=tf.gather(tf.constant(rewards), action),
            discount=tf.zeros([batch, length + 1]),
        )
    )


def train_on_bandit(agent):
    """A compiled train step on fresh unrolls; action 1 is the best one, and worth 1."""
    return tf.function(
        lambda: agent.train(bandit_unroll(agent, rewards=[0.0, 1.0, -1.0])), autograph=False
    )


@pytest.mark.parametrize("optimizer, learning_rate", [("adam", 0.02), ("rmsprop", 0.005)])
def test_training_makes_the_better_action_likely_and_the_value_right(optimizer, learning_rate):
    tf.keras.utils.set_random_seed(0)  # Also of the networks' first weights.
    world = make_world(ts.time_step_spec(B([2], tf.float32, -1, 1)), B([], tf.int64, 0, 2))
    agent = impala.impala(
        world,
        fc_layer_params=(16,),
        learning_rate=learning_rate,
        entropy_weight=0.0,
        optimizer=optimizer,
    ).agent
    train = train_on_bandit(agent)
    losses = [train().extra.value_loss for _ in range(200)]
    outputs, _ = agent._network(np.ones((1, 2), np.float32))
    assert tf.nn.softmax(outputs.parameters)[0, 1] > 0.9
    np.testing.assert_allclose(outputs.value[0], 1.0, atol=0.15)
    assert losses[-1] < 0.2 * losses[0]
    assert world.train_step == 200


def test_the_learning_rate_falls_with_environment_steps():
    world = make_world(ts.time_step_spec(B([2], tf.float32, -1, 1)), B([], tf.int64, 0, 2))
    agent = impala.impala(
        world, **SMALL, learning_rate=1e-2, learning_rate_end=0.0, learning_rate_decay_steps=100
    ).agent
    train = train_on_bandit(agent)
    moved = []
    for step in (0, 50, 100):
        world.environment_step.assign(step)
        before = [variable.numpy() for variable in agent.policy.variables()]
        train()
        after = [variable.numpy() for variable in agent.policy.variables()]
        moved.append(max(np.abs(b - a).max() for b, a in zip(before, after)))
    assert moved[0] > 1.5 * moved[1] > 0 and moved[2] == 0.0


def test_images_and_nests_can_be_learned_from():
    observation = {
        "camera": B([12, 12, 3], tf.uint8, 0, 255),
        "choice": B([2], tf.int64, 0, 3),
    }
    world = make_world(ts.time_step_spec(observation), B([], tf.int64, 0, 2))
    agent = impala.impala(world, **SMALL, lstm_size=4).agent
    sampled = tensor_spec.sample_spec_nest(agent.collect_data_spec, outer_dims=(2, 4))
    info = dict(sampled.policy_info)
    state = tf.nest.map_structure(lambda leaf: leaf[:, 0] * 0.0, info.pop(experience.STATE))
    info = tf.nest.map_structure(tf.zeros_like, info)
    trajectory = sampled._replace(
        policy_info=info, reward=tf.ones([2, 4]), discount=tf.ones([2, 4])
    )
    loss = agent.train(experience.Unroll(trajectory, state))
    assert np.isfinite(loss.loss)
    stream = graph.GraphInference(agent.collect_policy, num_lanes=3)
    step = tensor_spec.sample_spec_nest(world.time_step_spec, outer_dims=(3,))
    response = stream.act(tf.nest.map_structure(lambda leaf: leaf.numpy(), step))
    assert response.action.shape == (3,)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"optimizer": "sgd"}, "impala.optimizer"),
        ({"gamma": 1.5}, "impala.gamma"),
        ({"rho_bar": 0.0}, "impala.rho_bar"),
        ({"trace_lambda": -0.1}, "impala.trace_lambda"),
        ({"lstm_size": 4, "share_torso": False}, "share_torso"),
    ],
    ids=str,
)
def test_values_that_cannot_work_are_configuration_errors(options, match):
    world = make_world(ts.time_step_spec(B([2], tf.float32, -1, 1)), B([], tf.int64, 0, 2))
    with pytest.raises(errors.ConfigError, match=match):
        impala.impala(world, **options)


def test_weights_are_refused():
    world = make_world(ts.time_step_spec(B([2], tf.float32, -1, 1)), B([], tf.int64, 0, 2))
    agent = impala.impala(world, **SMALL).agent
    with pytest.raises(errors.SpecMismatchError, match="takes no weights"):
        agent.train(bandit_unroll(agent, rewards=[0.0, 1.0, -1.0]), weights=tf.ones([64]))


def test_normalised_unrolls_are_learned_from_by_the_statistics_of_those_before():
    gamma = 0.9
    agent, batches = collect(
        SPACES["discrete"],
        num_batches=3,
        gamma=gamma,
        normalize_observations=True,
        normalize_rewards=True,
    )
    for batch in batches:
        agent.train(batch)
    # By hand: rows of all unrolls; returns since the episode's first step.
    rows = np.concatenate([b.trajectory.observation[:, :-1] for b in batches]).reshape(-1, 2)
    running, returns = np.zeros(3), []
    for batch in batches:
        kinds, reward = batch.trajectory.step_type.numpy(), batch.trajectory.reward.numpy()
        for lane, row in np.ndindex(3, 7):
            if kinds[lane, row] in (ts.StepType.FIRST, ts.StepType.LAST):
                running[lane] = 0.0
            if kinds[lane, row] != ts.StepType.LAST:
                running[lane] = gamma * running[lane] + reward[lane, row]
                returns.append(running[lane])

    def by_hand(batch):
        trajectory = batch.trajectory
        observation = (trajectory.observation.numpy() - rows.mean(axis=0)) / rows.std(axis=0)
        return batch._replace(
            trajectory=trajectory._replace(
                observation=tf.constant(np.clip(observation, -10, 10), tf.float32),
                reward=tf.constant(trajectory.reward.numpy() / np.std(returns), tf.float32),
            )
        )

    world = make_world(agent.time_step_spec, agent.action_spec)
    plain = impala.impala(world, **SMALL, gamma=gamma).agent
    statistics = ("observation_0/", "discounted_return/")
    learned = [v for v in agent.policy.variables() if not v.name.startswith(statistics)]
    assert len(agent.policy.variables()) == len(learned) + 6
    for variable, value in zip(plain.policy.variables(), learned):
        variable.assign(value)
    np.testing.assert_allclose(
        agent.loss(batches[0]).loss, plain.loss(by_hand(batches[0])).loss, rtol=1e-4
    )
