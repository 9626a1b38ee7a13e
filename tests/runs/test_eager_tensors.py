"""How many eager tensors a turn of a run makes: on Python 3.11 each of them is lost for ever."""

import gc
import sys

import pytest
import tensorflow as tf

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import dqn
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.learning import priority_ring
from actor_learner.parameters import packing
from actor_learner.replay.streams import lane_replay, seeded_replay, window_replay
from actor_learner.runs import one_process
from actor_learner.runs.runners import turns
from actor_learner.support import counters, leaking_python

TURNS = 200

# They are counted as blocks of Python's allocator that are never given back.
pytestmark = pytest.mark.skipif(
    not leaking_python.leaks(), reason="eager tensors can be counted only where they leak"
)


def blocks_lost(call, times):
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        call()
    gc.collect()
    return sys.getallocatedblocks() - before


def lost_per_call(call, times=1_000):
    blocks_lost(call, 20)
    return round(blocks_lost(call, times) / times)


def test_every_eager_tensor_loses_one_block():
    assert lost_per_call(lambda: None) == 0
    assert lost_per_call(lambda: tf.constant(1.0)) == 1
    assert lost_per_call(lambda: [tf.constant(1.0), tf.constant(2.0)]) == 2


def test_a_counter_is_read_with_one_tensor_and_raised_with_none():
    counter = tf.Variable(0, dtype=tf.int64)
    assert lost_per_call(lambda: counter.numpy()) == 2
    assert lost_per_call(lambda: counters.read(counter)) == 1
    assert lost_per_call(lambda: counters.add(counter, 7)) == 0
    assert counters.read(counter) == counter.numpy() == 7 * 1_020


def test_a_policy_is_packed_and_assigned_with_one_tensor_each():
    """By a learner that publishes and an actor that takes over, several times per second."""
    made = packing.Packing([tf.Variable(tf.zeros(shape)) for shape in ([4, 8], [8], [8, 2], [2])])
    packed = made.pack()
    assert lost_per_call(made.pack) == 1
    assert lost_per_call(lambda: made.assign(packed)) == 1


def test_a_look_for_new_priorities_makes_one_tensor():
    """Fifty times per second, in a thread of its own: too seldom to count by turns."""
    ring = priority_ring.PriorityRing(capacity=4)
    assert lost_per_call(lambda: ring.read_after(0)) == 1


def small_dqn(world):
    return dqn.dqn(world, fc_layer_params=(8,), epsilon_decay_steps=500)


def cartpole(seed, num_envs=4):
    return gymnasium_environment.GymnasiumEnvironment("CartPole-v1", num_envs, seed=seed)


REPLAY = {"collect_steps": 32, "batch_size": 16, "updates_per_step": 0.25}
# Of a policy call: none. Of a turn: one for all weights of the policy and the step of its schedule,
# and one for what its call of the learner returns.
KINDS = {
    "LaneReplay": (lambda: lane_replay.LaneReplay(500), small_dqn, REPLAY, 0, 2),
    "WindowReplay": (lambda: window_replay.WindowReplay(500), small_dqn, REPLAY, 0, 2),
    "SeededReplay": (lambda: seeded_replay.SeededReplay(500), small_dqn, REPLAY, 0, 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_makes_no_more_tensors_than_its_policy_and_train_calls_need(kind, tmp_path):
    replay, agent, settings, per_policy_call, per_turn = KINDS[kind]
    wanted = experiment.Experiment(
        environment=cartpole,
        agent=agent,
        replay=replay(),
        environment_steps=1_000_000,
        initial_random_steps=100,
        evaluation=evaluation_settings.Evaluation(interval=0),
        # What time decides about would make the number of one turn differ from that of another.
        checkpoints=run_settings.Checkpoints(seconds=0),
        reporting=run_settings.Reporting(seconds=1e9),
        **settings,
    )
    run = run_directory.RunDirectory(tmp_path / "run")
    with one_process.OneProcess(wanted, run, seed=1) as training:
        stream = training._acting.actor._stream
        act, calls = stream.act, []
        stream.act = lambda time_step: calls.append(None) or act(time_step)

        def turn():
            began = training.environment_step
            turns.run(
                training._acting,
                training._learning,
                environment_steps=began + 1,
                ended=training._ended,
                further=training._further,
            )
            assert training.environment_step > began

        for _ in range(TURNS):  # Until all that is made once is made.
            turn()
        calls.clear()
        lost = blocks_lost(turn, TURNS)
        assert len(calls) > TURNS
        rest = (lost - per_policy_call * len(calls)) / TURNS
    # Blocks of other threads are counted too, one or two a turn.
    assert per_turn - 1 < rest < per_turn + 3
