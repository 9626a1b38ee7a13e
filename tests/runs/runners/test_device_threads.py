"""Actors and learner on devices of their own: what one thread would learn, whoever is quicker."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from actor_learner import run_settings
from actor_learner.runs import step_watch
from actor_learner.runs.runners import device_actors, device_threads
from actor_learner.support import errors
from tests import forked
from tests.runs.runners import device_program


def test_two_actor_threads_and_a_learner_do_what_one_thread_does(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.runners.device_program", str(tmp_path)],
        cwd=forked.ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(found["threads"], found["one_thread"], rtol=1e-5)
    assert found["threads_counts"] == found["one_thread_counts"]
    environment_steps, train_steps = found["threads_counts"]
    assert environment_steps >= device_program.STEPS
    per_round = 2 * device_program.LANES * device_program.LENGTH
    assert (train_steps - 1) * per_round <= environment_steps + 2 * found["row"]["episodes"]
    assert found["row"]["replay_size"] == 0 and found["row"]["samples_per_insert"] == 1.0
    assert found["row"]["version_lag"] == device_program.LAG
    assert found["actor_device"].endswith("CPU:2")
    assert found["learner_device"].endswith("CPU:0")


def test_actors_get_the_policy_of_their_turn_however_late_they_are():
    source = [tf.Variable(0.0)]
    targets = [[tf.Variable(-1.0)], [tf.Variable(-1.0)]]
    staged = device_actors.StagedPolicies(source, targets, lag=1)
    staged.publish()
    staged.apply(0, 0)
    staged.apply(0, 1)  # The learner has not trained yet: a lag of one allows it.
    for step in (1.0, 2.0):
        source[0].assign(step)
        staged.publish()
    staged.apply(0, 3)
    staged.apply(1, 2)
    assert [float(target[0]) for target in targets] == [2.0, 1.0]
    assert staged.rounds == 2


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(errors.ConfigError, match="'GPU:7', but TensorFlow has CPU:0"):
        device_actors.divide_cpu(run_settings.Devices(("CPU:0", "GPU:7")))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"actors": "CPU:0"}, "must be a list"),
        ({"learner": "CPU:0"}, "no effect without Devices.actors"),
        ({"actors": ("CPU:0",), "lag": -1}, "Devices.lag must be at least 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(arguments, why):
    with pytest.raises(errors.ConfigError, match=why):
        run_settings.Devices(**arguments)


def test_collecting_overlaps_with_learning():
    """An actor takes its next turn while the learner is within a train step."""
    acting_again = threading.Event()

    class Actor:
        def __init__(self):
            self.turns, self.watch = 0, step_watch.StepWatch(60.0)

        def run(self):
            if self.turns == 1:
                acting_again.set()
            self.turns += 1

    class Policies:
        rounds = -1

        def publish(self):
            self.rounds += 1

        def apply(self, actor, turn):
            assert turn - self.rounds <= 1

    class Acting:
        actors, policies = [Actor(), Actor()], Policies()

        def steps_of_round(self):
            return 10

        def count_episodes(self):
            pass

    class Learning:
        environment_step = 0

        def updates_due(self):
            turns = min(actor.turns for actor in Acting.actors)
            return turns - Acting.policies.rounds

        def train(self, updates):
            assert acting_again.wait(60.0)

        def write_row_if_due(self):
            pass

    device_threads.run(Acting(), Learning(), lag=1, environment_steps=30, ended=lambda: False)
    # Three rounds have the steps, and one more was begun by then.
    assert Acting.policies.rounds == 4
    assert [actor.turns for actor in Acting.actors] == [4, 4]
