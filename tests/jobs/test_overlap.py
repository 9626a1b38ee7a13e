"""Collecting in a thread while the learner trains."""

import threading

import pytest
import tensorflow as tf

from actor_learner import run_directory
from actor_learner.jobs import one_process, overlap
from tests.jobs import test_one_process


class FakeCollector:
    """Counts turns; raises in the turn it is told to."""

    def __init__(self, fail_at=None):
        self.turns = 0
        self.fail_at = fail_at

    def run(self):
        self.turns += 1
        if self.turns == self.fail_at:
            raise ValueError("the environment broke")


def test_the_thread_takes_a_turn_whenever_it_may_and_stops_in_between():
    allowed = threading.Semaphore(0)
    collector = FakeCollector()
    thread = overlap.CollectorThread(
        collector, may_run=lambda: allowed.acquire(blocking=False), before_turn=lambda: None
    )
    thread.start()
    for turns in (1, 2, 3):
        allowed.release()
        thread.learner_advanced()
        while thread.turns < turns:
            thread.wait(lambda turns=turns: thread.turns >= turns)
        assert collector.turns == turns
    thread.stop()
    assert collector.turns == 3


def test_what_the_thread_raises_reaches_the_one_who_waits():
    thread = overlap.CollectorThread(
        FakeCollector(fail_at=2), may_run=lambda: True, before_turn=lambda: None
    )
    thread.start()
    with pytest.raises(ValueError, match="the environment broke"):
        while True:
            thread.wait(lambda: False)
    thread.stop()


def test_a_copy_changes_only_between_turns_and_then_as_a_whole():
    source = [tf.Variable([1.0, 2.0]), tf.Variable(3)]
    target = [tf.Variable([0.0, 0.0]), tf.Variable(0)]
    copy = overlap.PolicyCopy(source, target)
    source[0].assign([5.0, 6.0])
    copy.apply()
    assert target[0].numpy().tolist() == [1.0, 2.0] and target[1].numpy() == 3
    source[1].assign(7)
    copy.apply()
    assert target[1].numpy() == 3
    copy.publish()
    copy.apply()
    assert target[0].numpy().tolist() == [5.0, 6.0] and target[1].numpy() == 7


def test_an_overlapping_run_keeps_the_ratio_and_resumes(tmp_path):
    rows = []
    status, environment_steps, train_steps = test_one_process.train(
        tmp_path, rows, overlap=True, environment_steps=1_000
    )
    assert status == one_process.COMPLETED
    assert environment_steps >= 1_000
    # The learner may end up to two turns behind the collector.
    assert 0 <= (environment_steps - 100) // 2 - train_steps <= 2 * 50
    for row in rows:
        assert row["train_steps"] <= max(0, row["environment_steps"] - 100) // 2
    assert rows[-1]["return"] == 15 and "version_lag" in rows[-1]
    with one_process.OneProcess(
        test_one_process.make_experiment(overlap=True, environment_steps=1_200),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
    ) as resumed:
        assert resumed.train_step == train_steps
        assert resumed.run() == one_process.COMPLETED


def test_an_environment_that_breaks_in_the_thread_ends_the_run_with_its_error(tmp_path):
    def breaking(seed, num_envs=4):
        env = test_one_process.counting(seed, num_envs)
        steps = iter(range(200))
        step = env._step

        def counted(action):
            if next(steps, None) is None:
                raise OSError("lost the simulator")
            return step(action)

        env._step = counted
        return env

    with pytest.raises(OSError, match="lost the simulator"):
        test_one_process.train(
            tmp_path, environment=breaking, overlap=True, environment_steps=10_000
        )
