"""When TFLite takes over what the learner has changed, and that it looks no more often."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.agents import dqn
from actor_learner.inference import graph, lite, lite_constants, lite_model
from actor_learner.support import counters, leaking_python, packed_variables
from tests.inference import policies

OBSERVATION = policies.OBSERVATIONS["vector"]
LANES = 8


def step(lanes=LANES):
    return policies.time_step(np.random.default_rng(0), OBSERVATION, lanes)


def greedy_sac():
    return policies.greedy(policies.agent_of("sac").policy)


@pytest.fixture
def no_more_conversions(monkeypatch):
    def refuse(*_):
        raise AssertionError("converted once more")

    return lambda: monkeypatch.setattr(lite_model, "converted", refuse)


def test_new_weights_take_effect_with_a_new_version_and_not_before(no_more_conversions):
    policy = greedy_sac()
    stream = lite.LiteInference(policy, LANES, seed=0)
    no_more_conversions()
    stream.refresh(1, certain=True)
    before = stream.act(step()).action
    policies.shake(policy, seed=1)
    wanted = graph.GraphInference(policy, LANES).act(step()).action
    assert np.abs(wanted - before).max() > 0.01

    stream.refresh(1, certain=True)
    np.testing.assert_array_equal(stream.act(step()).action, before)
    stream.refresh(2, certain=True)
    np.testing.assert_allclose(stream.act(step()).action, wanted, atol=1e-5)


def test_weights_that_stay_become_constants_and_inputs_again_once_they_change(monkeypatch):
    made = []
    interpreter = lite_constants.ConstantsModel.interpreter
    monkeypatch.setattr(
        lite_constants.ConstantsModel,
        "interpreter",
        lambda self, values: made.append(self) or interpreter(self, values),
    )
    policy = greedy_sac()
    stream = lite.LiteInference(policy, LANES, seed=0)
    for version in range(3):
        policies.shake(policy, seed=version)
        stream.refresh(version, certain=True)
        wanted = graph.GraphInference(policy, LANES).act(step()).action
        for call in range(40):
            # What does not change the weights does not put off their becoming constants, either.
            stream.refresh(version, certain=call % 2 == 0)
            np.testing.assert_allclose(stream.act(step()).action, wanted, atol=1e-5)
            assert len(made) == version + (call >= 16)


def test_weights_that_change_in_every_run_never_become_constants(monkeypatch):
    monkeypatch.setattr(lite_constants.ConstantsModel, "interpreter", None)  # Cannot be called.
    policy = greedy_sac()
    stream = lite.LiteInference(policy, LANES, seed=0)
    for version in range(10):
        stream.refresh(version, certain=True)
        for _ in range(16):
            stream.act(step())


def test_a_schedule_takes_effect_while_weights_are_constants():
    world = policies.world()
    agent = dqn.dqn(world, epsilon_decay_steps=100, epsilon_end=0.0).agent
    stream = lite.LiteInference(agent.collect_policy, 64, seed=0)
    best = graph.GraphInference(agent.policy, 64).act(step(64)).action
    for _ in range(20):  # Of which the last ones run with constants.
        explored = stream.act(step(64)).action
    assert (explored != best).any()
    world.environment_step.assign(100)
    stream.refresh(-1, certain=True)  # A version that it does not know: inputs again,
    stream.refresh(-1, certain=True)
    for _ in range(20):  # and constants.
        assert (stream.act(step(64)).action == best).all()
    world.environment_step.assign(0)
    stream.refresh(-1, certain=True)
    assert any((stream.act(step(64)).action != best).any() for _ in range(20))


def test_new_weights_of_another_learner_take_effect_though_the_version_is_the_same():
    policy = greedy_sac()
    stream = lite.LiteInference(policy, LANES, seed=0)
    stream.refresh(5, epoch=1, certain=True)
    policies.shake(policy, seed=1)
    wanted = graph.GraphInference(policy, LANES).act(step()).action
    stream.refresh(5, epoch=2, certain=True)
    np.testing.assert_allclose(stream.act(step()).action, wanted, atol=1e-5)


def test_weights_that_change_without_a_new_version_are_noticed_unless_told_otherwise():
    """As those of an agent that counts its train steps elsewhere."""
    policy = greedy_sac()
    stream = lite.LiteInference(policy, LANES, seed=0)
    stream.refresh(0)
    policies.shake(policy, seed=1)
    wanted = graph.GraphInference(policy, LANES).act(step()).action
    stream.refresh(0)
    np.testing.assert_allclose(stream.act(step()).action, wanted, atol=1e-5)


def test_without_a_version_all_weights_are_read():
    policy = greedy_sac()
    stream = lite.LiteInference(policy, LANES, seed=0)
    stream.refresh()
    (first, *_) = [v for v in policy.variables() if v.trainable and v.shape.rank == 2]
    first.assign_add(tf.ones_like(first))  # Of which the smallest weight knows nothing.
    wanted = graph.GraphInference(policy, LANES).act(step()).action
    stream.refresh()
    np.testing.assert_allclose(stream.act(step()).action, wanted, atol=1e-5)


def test_a_schedule_takes_effect_without_a_new_version_or_conversion(no_more_conversions):
    world = policies.world()
    agent = dqn.dqn(world, epsilon_decay_steps=100, epsilon_end=0.0).agent
    stream = lite.LiteInference(agent.collect_policy, 64, seed=0)
    no_more_conversions()
    best = graph.GraphInference(agent.policy, 64).act(step(64)).action
    stream.refresh(0, certain=True)
    explored = [stream.act(step(64)).action for _ in range(10)]
    world.environment_step.assign(100)
    stream.refresh(0, certain=True)
    exploited = [stream.act(step(64)).action for _ in range(10)]
    assert any((actions != best).any() for actions in explored)
    assert all((actions == best).all() for actions in exploited)


def test_an_epsilon_in_a_variable_of_the_users_takes_effect():
    from tf_agents.policies import epsilon_greedy_policy

    policy = policies.agent_of("dqn").policy
    epsilon = tf.Variable(0.0)  # Trainable, as variables are unless one says otherwise.
    explorer = epsilon_greedy_policy.EpsilonGreedyPolicy(policy, epsilon=lambda: epsilon)
    stream = lite.LiteInference(explorer, 64, seed=0)
    best = graph.GraphInference(policy, 64).act(step(64)).action
    np.testing.assert_array_equal(stream.act(step(64)).action, best)
    epsilon.assign(1.0)
    stream.refresh(0, certain=True)
    assert (stream.act(step(64)).action != best).any()


def test_a_variable_that_takes_another_shape_is_taken_over():
    """Epsilons restored from a run with other lanes."""
    agent = policies.agent_of("r2d2", lanes=2)
    agent.collect_policy.epsilons = np.zeros(2)
    stream = lite.LiteInference(agent.collect_policy, 4, seed=0)
    wanted = graph.GraphInference(agent.policy, 4).act(step(4)).action
    np.testing.assert_array_equal(stream.act(step(4)).action, wanted)
    stream.reset()
    agent.collect_policy.epsilons = np.array([1.0, 0.0, 0.0])
    stream.refresh(1)
    first = step(4)._replace(step_type=np.zeros(4, np.int32))
    actions = np.array([stream.act(first).action for _ in range(50)])
    assert (actions[:, 1:3] == wanted[1:3]).all()  # Lanes 0 and 3 have the first epsilon.
    assert (actions[:, [0, 3]] != wanted[[0, 3]]).any(axis=0).all()


def test_normalised_observations_follow_their_statistics():
    agent = policies.agent_of("ppo normalized")
    policy = policies.greedy(agent.policy)
    stream = lite.LiteInference(policy, LANES, seed=0)
    policies.shake(policy, scale=0.0, seed=9)  # Moves the statistics only.
    wanted = graph.GraphInference(policy, LANES).act(step()).action
    assert np.abs(stream.act(step()).action - wanted).max() > 1e-3
    stream.refresh(1)
    np.testing.assert_allclose(stream.act(step()).action, wanted, atol=1e-5)


def test_a_known_version_reads_no_weight_and_an_uncertain_one_reads_one(monkeypatch):
    agent = policies.agent_of("dqn")
    stream = lite.LiteInference(agent.collect_policy, 1, seed=0)
    read = []

    def counting(owner, original, variables):
        def noted(self_or_variable):
            read.extend(variables(self_or_variable))
            return original(self_or_variable)

        return owner, "read", noted

    packed = packed_variables.PackedVariables
    monkeypatch.setattr(*counting(packed, packed.read, lambda self: self._variables))
    stream.refresh(3, certain=True)
    assert len(read) == 5  # Four weights and the step of the schedule.
    monkeypatch.setattr(packed, "read", lambda self: [counters.read(v) for v in self._variables])
    monkeypatch.setattr(*counting(counters, counters.read, lambda variable: [variable]))
    read.clear()
    stream.refresh(3, certain=True)
    assert len(read) == 1
    read.clear()
    stream.refresh(3)
    assert len(read) == 2
    read.clear()
    for _ in range(10):
        stream.act(step(1))
    assert read == []


@pytest.mark.skipif(not leaking_python.leaks(), reason="eager tensors can be counted only there")
@pytest.mark.parametrize("name", ["dqn", "sac", "ppo memory", "r2d2", "td3 float64"])
def test_acting_makes_no_eager_tensor(name):
    """Each would lose a block of Python's allocator for ever."""
    policy = policies.agent_of(name, lanes=2).collect_policy
    stream = lite.LiteInference(policy, 2, seed=0)
    now = step(2)
    for _ in range(20):
        stream.act(now)
    before = sys.getallocatedblocks()
    for _ in range(500):
        stream.act(now)
    assert sys.getallocatedblocks() - before < 50
