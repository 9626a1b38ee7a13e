"""Every builder trains, acts and exports for the observations it may meet."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import batch_notes
from actor_learner.agents import algorithm, c51, ddpg, dqn, sac, schedules, td3
from actor_learner.inference import graph
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
OBSERVATIONS = {
    "vector": B([4], tf.float32, -1, 1),
    "image": B([40, 40, 3], tf.uint8, 0, 255),
    "stacked frames": B([4, 36, 36], tf.uint8, 0, 255),
    "grey image": B([36, 40], tf.uint8, 0, 255),
    "memory": B([128], tf.uint8, 0, 255),
    "discrete": B([], tf.int64, 2, 5),
    "dict": {
        "position": B([3], tf.float32, -1, 1),
        "camera": B([12, 12, 3], tf.uint8, 0, 255),
        "choice": B([2], tf.int64, 0, 3),
    },
}
DISCRETE = B([], tf.int64, 0, 2)
CONTINUOUS = B([2], tf.float32, [-2.0, -1.0], [2.0, 1.0])
BUILDERS = {
    "dqn": (dqn.dqn, DISCRETE),
    "c51": (c51.c51, DISCRETE),
    "sac": (sac.sac, CONTINUOUS),
    "td3": (td3.td3, CONTINUOUS),
    "ddpg": (ddpg.ddpg, CONTINUOUS),
}
SMALL = {
    "dqn": {"fc_layer_params": (8,)},
    "c51": {"fc_layer_params": (8,)},
    **{
        name: {"actor_fc_layer_params": (8,), "critic_fc_layer_params": (8,)}
        for name in ("sac", "td3", "ddpg")
    },
}


def make_world(observation, action):
    return algorithm.World(
        ts.time_step_spec(observation),
        action,
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )


def batch_for(agent, size=8):
    sampled = tensor_spec.sample_spec_nest(agent.collect_data_spec, outer_dims=(size, 2))
    return sampled._replace(
        reward=tf.ones([size, 2]),
        discount=tf.ones([size, 2]),
        step_type=tf.ones([size, 2], tf.int32),
    )


# Each kind of observation with a discrete and a continuous agent, each agent at least once.
CASES = [
    ("dqn", "vector"), ("dqn", "image"), ("dqn", "discrete"), ("dqn", "dict"),
    ("sac", "vector"), ("sac", "image"), ("sac", "dict"),
    ("c51", "vector"), ("c51", "stacked frames"), ("dqn", "grey image"), ("dqn", "memory"),
    ("td3", "dict"), ("ddpg", "discrete"),
]  # fmt: skip


@pytest.mark.parametrize("name, observation", CASES)
def test_an_agent_acts_and_trains_on_the_observation(name, observation):
    builder, action = BUILDERS[name]
    world = make_world(OBSERVATIONS[observation], action)
    agent = builder(world, **SMALL[name]).agent
    agent.initialize()
    before = [v.numpy() for v in agent.collect_policy.variables() if v.dtype.is_floating]
    loss = tf.function(agent.train)(batch_for(agent)).loss
    if name == "td3":  # The actor is updated every second step.
        tf.function(agent.train)(batch_for(agent))
    after = [v.numpy() for v in agent.collect_policy.variables() if v.dtype.is_floating]
    assert np.isfinite(loss)
    assert any((b != a).any() for b, a in zip(before, after))

    stream = graph.GraphInference(agent.collect_policy, num_lanes=3)
    step = tensor_spec.sample_spec_nest(world.time_step_spec, outer_dims=(3,))
    actions = stream.act(tf.nest.map_structure(lambda t: t.numpy(), step)).action
    assert actions.shape == (3, *action.shape)
    assert (actions >= action.minimum).all() and (actions <= action.maximum).all()


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_the_collect_policy_can_be_exported(name, tmp_path):
    builder, action = BUILDERS[name]
    agent = builder(make_world(OBSERVATIONS["vector"], action), **SMALL[name]).agent
    agent.initialize()
    policy_saver.PolicySaver(agent.collect_policy).save(str(tmp_path / "policy"))
    loaded = tf.saved_model.load(str(tmp_path / "policy"))
    step = tensor_spec.sample_spec_nest(agent.time_step_spec, outer_dims=(2,))
    state = agent.collect_policy.get_initial_state(2)
    assert loaded.action(step, state).action.shape == (2, *action.shape)


@pytest.mark.parametrize("name", ["dqn", "c51"])
def test_discrete_agents_refuse_continuous_actions(name):
    with pytest.raises(errors.SpecMismatchError, match="one discrete action"):
        BUILDERS[name][0](make_world(OBSERVATIONS["vector"], CONTINUOUS))


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_continuous_agents_refuse_discrete_actions(name):
    with pytest.raises(errors.SpecMismatchError, match="one continuous action"):
        BUILDERS[name][0](make_world(OBSERVATIONS["vector"], DISCRETE))


def test_c51_refuses_an_empty_range_of_returns():
    with pytest.raises(errors.ConfigError, match="min_q_value"):
        c51.c51(make_world(OBSERVATIONS["vector"], DISCRETE), min_q_value=5.0, max_q_value=5.0)


def test_c51_notes_the_mean_of_each_target():
    """Not the returns that its distribution is over, whose mean says nothing."""
    world = make_world(OBSERVATIONS["vector"], DISCRETE)
    agent = c51.c51(world, fc_layer_params=(8,), gamma=0.5, num_atoms=3).agent
    # The next state's return is the largest one, 10, for certain.
    *others, bias = agent._target_q_network.variables
    for variable in others:
        variable.assign(tf.zeros_like(variable))
    bias.assign(tf.tile([0.0, 0.0, 100.0], [3]))
    batch, notes = batch_for(agent), batch_notes.BatchNotes()
    with notes.over({}):
        agent._loss(batch, gamma=0.5)
    np.testing.assert_allclose(notes.read()["target"], [1.0 + 0.5 * 10.0] * 8, rtol=1e-5)


def test_a_linear_schedule_falls_and_stays():
    step = tf.Variable(0, dtype=tf.int64)
    value = schedules.linear(step, start=1.0, end=0.2, num_steps=4)
    values = []
    for at in (0, 1, 2, 4, 100):
        step.assign(at)
        values.append(float(value()))
    np.testing.assert_allclose(values, [1.0, 0.8, 0.6, 0.2, 0.2], atol=1e-6)


def test_a_bare_agent_of_the_users_own_is_taken_and_anything_else_refused():
    agent = dqn.dqn(make_world(OBSERVATIONS["vector"], DISCRETE)).agent
    assert algorithm.as_algorithm(agent).agent is agent
    with pytest.raises(errors.ConfigError, match="must return a TFAgent or an Algorithm"):
        algorithm.as_algorithm("dqn")


@pytest.mark.parametrize(
    "name, exploring",
    [("td3", {"exploration_noise": 0.3}), ("ddpg", {"noise_stddev": 0.3}), ("sac", {})],
)
def test_every_lane_explores_on_its_own(name, exploring):
    builder, action = BUILDERS[name]
    agent = builder(make_world(OBSERVATIONS["vector"], action), **SMALL[name], **exploring).agent
    agent.initialize()
    lanes = 32
    alike = ts.TimeStep(
        np.ones(lanes, np.int32),
        np.zeros(lanes, np.float32),
        np.ones(lanes, np.float32),
        np.ones((lanes, 4), np.float32),
    )
    stream = graph.GraphInference(agent.collect_policy, lanes)
    for _ in range(2):
        actions = stream.act(alike).action
        assert len(np.unique(actions[:, 0])) > lanes // 2


def test_ornstein_uhlenbeck_noise_drifts_and_starts_anew_with_the_episode():
    agent = ddpg.ddpg(
        make_world(OBSERVATIONS["vector"], CONTINUOUS), noise_stddev=0.01, noise_damping=0.0,
        **SMALL["ddpg"],
    ).agent  # fmt: skip
    agent.initialize()
    stream = graph.GraphInference(agent.collect_policy, 2)
    observation = np.zeros((2, 4), np.float32)

    def act(first):
        types = np.array([0 if first else 1, 1], np.int32)
        step = ts.TimeStep(types, np.zeros(2, np.float32), np.ones(2, np.float32), observation)
        return stream.act(step).previous_state

    # The farthest it was: where it is at the end may be near the start by chance.
    farthest = max(np.abs(act(first=False)[1]).max() for _ in range(400))
    assert farthest > 0.05
    state = act(first=True)
    assert not np.any(state[0]) and np.any(state[1])  # Only the lane that starts has forgotten.


def test_unbounded_actions_are_refused():
    unbounded = B([2], tf.float32, -np.inf, np.inf)
    with pytest.raises(errors.SpecMismatchError, match="an action with bounds"):
        sac.sac(make_world(OBSERVATIONS["vector"], unbounded))


@pytest.mark.parametrize(
    "build, match",
    [
        (lambda world: dqn.dqn(world, n_step=0), "n_step"),
        (lambda world: dqn.dqn(world, gamma=2.0), "gamma"),
        (lambda world: dqn.dqn(world, epsilon_decay_steps=0), "at least one step"),
    ],
)
def test_values_that_cannot_work_are_configuration_errors(build, match):
    with pytest.raises(errors.ConfigError, match=match):
        build(make_world(OBSERVATIONS["vector"], DISCRETE))


def test_an_entropy_weight_of_zero_is_refused():
    with pytest.raises(errors.ConfigError, match="initial_alpha"):
        sac.sac(make_world(OBSERVATIONS["vector"], CONTINUOUS), initial_alpha=0.0)
