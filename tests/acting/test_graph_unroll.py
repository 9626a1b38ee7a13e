"""Whole unrolls in one graph call: the same steps as one by one."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network, q_rnn_network
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step

from actor_learner.acting import actor, graph_unroll
from actor_learner.environments.tensor import cartpole, environment
from actor_learner.inference import streams
from actor_learner.support import errors

LANES = 3


def make_env(seed=1, limit=7, **arguments):
    return environment.TensorEnvironment(
        cartpole.CartPoleDynamics(), LANES, seed=seed, max_episode_steps=limit, **arguments
    )


def specs(env):
    return tensor_spec.from_spec(env.time_step_spec()), tensor_spec.from_spec(env.action_spec())


def greedy_policy(env, recurrent):
    tf.keras.utils.set_random_seed(0)
    time_step_spec, action_spec = specs(env)
    if recurrent:
        network = q_rnn_network.QRnnNetwork(
            time_step_spec.observation, action_spec, lstm_size=(5,), output_fc_layer_params=None
        )
    else:
        network = q_network.QNetwork(time_step_spec.observation, action_spec, fc_layer_params=(8,))
    agent = dqn_agent.DqnAgent(time_step_spec, action_spec, network, optimizer=None)
    agent.initialize()
    return agent.policy


def play(lanes, stream, steps):
    """The time steps and actions that stepping `lanes` with the actions of `stream` gives."""
    time_step = lanes.reset()
    stream.reset()
    seen = []
    for _ in range(steps):
        response = stream.act(time_step)
        seen.append((time_step, response.action, response.previous_state))
        time_step = lanes.step(response.action)
    return seen


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("length", [1, 5])
def test_an_unroll_takes_the_steps_that_single_calls_would_take(recurrent, length):
    """Over ends of episodes, and with states that are reset there."""
    env = make_env()
    policy = greedy_policy(env, recurrent)
    one_by_one = play(env, streams.stream_for(policy, LANES, batched=True), 20)
    unroll = graph_unroll.GraphUnroll(make_env(), policy, length)
    in_graph = play(unroll, unroll.inference, 20)
    for expected, seen in zip(one_by_one, in_graph):
        tf.nest.assert_same_structure(expected[:2], seen[:2])
        for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(seen)):
            assert np.asarray(one).dtype == other.dtype
            np.testing.assert_allclose(one, other, atol=1e-5)
    assert {0, 1, 2} == set(np.concatenate([step.step_type for step, _, _ in in_graph]))


class Counted(tf_policy.TFPolicy):
    """Acts by a variable, says in its info how often it has acted in the episode."""

    def __init__(self, env):
        time_step_spec, action_spec = specs(env)
        count = tf.TensorSpec([], tf.int32)
        super().__init__(
            time_step_spec, action_spec, policy_state_spec=count, info_spec={"count": count}
        )
        self.choice = tf.Variable(0, dtype=tf.int64)

    def _variables(self):
        return [self.choice]

    def _action(self, time_step, policy_state, seed):
        action = tf.fill(tf.shape(time_step.step_type), self.choice)
        return policy_step.PolicyStep(action, policy_state + 1, {"count": policy_state + 1})

    def _distribution(self, time_step, policy_state):
        raise NotImplementedError


def test_policy_info_and_state_begin_anew_with_each_episode():
    env = make_env(limit=4)
    unroll = graph_unroll.GraphUnroll(env, Counted(env), 3)
    time_step = unroll.reset()
    counts = []
    for _ in range(12):
        response = unroll.inference.act(time_step)
        counts.append(response.policy_info["count"].tolist())
        assert (response.previous_state == response.policy_info["count"] - 1).all()
        time_step = unroll.step(response.action)
    assert counts == [[1 + step % 5] * LANES for step in range(12)]


def test_a_changed_policy_takes_effect_in_the_next_unroll_without_tracing_again():
    env = make_env()
    policy = Counted(env)
    unroll = graph_unroll.GraphUnroll(env, policy, 3)
    time_step = unroll.reset()
    actions = []
    for _ in range(6):
        response = unroll.inference.act(time_step)
        policy.choice.assign(1)
        actions.append(int(response.action[0]))
        time_step = unroll.step(response.action)
    assert actions == [0, 0, 0, 1, 1, 1]
    assert unroll.trace_count == 1


def test_steps_of_others_go_to_the_environment_one_by_one():
    env = make_env()
    unroll = graph_unroll.GraphUnroll(env, Counted(env), 3)
    unroll.reset()
    alone = make_env()
    alone.reset()
    for action in ([1, 0, 1], [0, 0, 1]):
        time_step, expected = (one.step(np.array(action)) for one in (unroll, alone))
    np.testing.assert_array_equal(time_step.observation, expected.observation)
    response = unroll.inference.act(time_step)  # Goes on from there.
    expected = alone.step(np.asarray(response.action))
    np.testing.assert_allclose(unroll.step(response.action).observation, expected.observation)


def test_a_reset_forgets_the_rest_of_an_unroll():
    env = make_env()
    unroll = graph_unroll.GraphUnroll(env, Counted(env), 5)
    unroll.step(unroll.inference.act(unroll.reset()).action)
    time_step = unroll.reset()
    unroll.inference.reset()
    assert time_step.step_type.tolist() == [0] * LANES
    assert unroll.inference.act(time_step).policy_info["count"].tolist() == [1] * LANES


def test_what_is_not_finite_in_an_unroll_is_refused():
    class Broken(cartpole.CartPoleDynamics):
        def observe(self, state):
            return tf.where(state > 0.3, float("nan"), state)

    env = environment.TensorEnvironment(Broken(), LANES, seed=1)
    unroll = graph_unroll.GraphUnroll(env, Counted(env), 20)
    time_step = unroll.reset()
    with pytest.raises(errors.NotFiniteError, match="'Broken': observation"):
        for _ in range(20):
            time_step = unroll.step(unroll.inference.act(time_step).action)


def test_a_run_after_one_that_an_observer_ended_takes_the_rest_of_the_unroll():
    """Or the first steps of every later run would be of another version than they say."""
    env = make_env()
    policy = Counted(env)
    version, seen = tf.Variable(0, dtype=tf.int64), []

    def observe(trajectory):
        seen.append((ours.policy_version, int(trajectory.action[0])))
        if len(seen) == 2:
            raise OSError("disk full")

    ours = actor.Actor(env, policy, version, group_steps_per_run=3, observers=[observe])
    assert ours.inference == "unroll"
    with pytest.raises(OSError, match="disk full"):
        ours.run()
    version.assign(1)
    policy.choice.assign(1)
    ours.run()
    assert seen == [(0, 0), (0, 0), (0, 0)]
    ours.run()
    assert seen[3:] == [(1, 1)] * 3


def test_an_unroll_is_a_graph_call_and_cannot_be_lite():
    env = make_env()
    for inference, message in (("lite", "in one TensorFlow graph call"), ("lit", "got 'lit'")):
        with pytest.raises(errors.ConfigError, match=message):
            actor.Actor(
                env,
                Counted(env),
                tf.Variable(0, dtype=tf.int64),
                group_steps_per_run=3,
                inference=inference,
            )


@pytest.mark.parametrize("bad_step", [None, 2, 7])
def test_a_step_that_is_not_finite_is_refused_when_its_turn_comes(bad_step):
    """One look at a whole unroll counts steps and episodes as a look at each step does."""

    class Breaking(cartpole.CartPoleDynamics):
        def observe(self, state):
            return state

        def step(self, state, action, seed):
            outcome = super().step(state, action, seed)
            is_bad = tf.equal(seed[1], -1 if bad_step is None else 2 * bad_step)
            return outcome._replace(reward=tf.where(is_bad, np.nan, outcome.reward))

    messages = []
    for length in (1, 5):
        env = environment.TensorEnvironment(Breaking(), LANES, seed=1, max_episode_steps=4)
        unroll = graph_unroll.GraphUnroll(env, Counted(env), length)
        time_step, taken = unroll.reset(), 0
        try:
            for _ in range(10):
                time_step = unroll.step(unroll.inference.act(time_step).action)
                taken += 1
            messages.append((taken, "finite"))
        except errors.NotFiniteError as error:
            messages.append((taken, str(error)))
    assert messages[0] == messages[1]
    assert messages[0][0] == (10 if bad_step is None else bad_step - 1)
