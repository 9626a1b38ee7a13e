"""Collecting in a thread while the learner trains."""

import threading

import pytest
import tensorflow as tf

from actor_learner import plan, run_directory
from actor_learner.replay.server import tables
from actor_learner.replay.streams import lane_replay
from actor_learner.runs import one_process, step_watch
from actor_learner.runs.runners import threads
from actor_learner.support import errors
from tests.runs import test_one_process, test_step_watch

TURN = 52
"""Environment steps of a turn of 50, in whole steps of four lanes."""


class FakeActing:
    """Counts turns; raises in the turn it is told to."""

    def __init__(self, fail_at=None, watch=None):
        self.turns = 0
        self.fail_at = fail_at
        self.watch = watch or step_watch.StepWatch(60.0)
        self.failed = threading.Event()

    def run(self):
        self.turns += 1
        if self.turns == self.fail_at:
            self.failed.set()
            raise ValueError("the environment broke")


class LookedAtWatch(step_watch.StepWatch):
    """Says when somebody looks whether a step is overdue."""

    def __init__(self, timeout_seconds, clock):
        super().__init__(timeout_seconds, clock)
        self.looked = threading.Event()

    def overdue_seconds(self, since):
        overdue = super().overdue_seconds(since)
        self.looked.set()
        return overdue


class SlowActing:
    """Takes steps of 100 s each, by a clock of its own; never returns from the one after them."""

    def __init__(self, steps, hang=False):
        self.clock = test_step_watch.Clock()
        self.watch = LookedAtWatch(110.0, self.clock)
        self.steps, self.hang = steps, hang
        self.started, self.released = threading.Event(), threading.Event()

    def run(self):
        self.started.set()
        for _ in range(self.steps):
            self.watch.looked.wait(60.0)
            self.watch.looked.clear()
            self.clock.seconds += 100.0
            self.watch(None)
        while self.hang and not self.released.is_set():
            if self.watch.looked.wait(1.0):
                self.watch.looked.clear()
                self.clock.seconds += 10_000.0


def make_thread(acting, may_run=lambda: True, before_turn=lambda: None):
    return threads.ActingThread(acting, may_run=may_run, before_turn=before_turn)


def test_the_thread_takes_a_turn_whenever_it_may_and_stops_in_between():
    allowed = threading.Semaphore(0)
    acting = FakeActing()
    thread = make_thread(acting, may_run=lambda: allowed.acquire(blocking=False))
    thread.start()
    for turns in (1, 2, 3):
        allowed.release()
        thread.learner_advanced()
        thread.wait(lambda turns=turns: acting.turns >= turns)
        assert acting.turns == turns
    assert thread.stop()
    assert acting.turns == 3


def test_what_the_thread_raises_reaches_the_one_who_waits():
    thread = make_thread(FakeActing(fail_at=2))
    thread.start()
    with pytest.raises(ValueError, match="the environment broke"):
        thread.wait(lambda: False)
    thread.stop()


def test_a_turn_is_waited_for_as_long_as_it_takes_steps():
    acting = SlowActing(steps=4)
    thread = make_thread(acting)
    thread.start()
    acting.started.wait(60.0)
    assert thread.stop()
    assert acting.clock.seconds >= 1_400.0


def test_a_step_that_never_returns_is_an_error_for_the_one_who_waits_and_a_warning_at_the_end():
    acting = SlowActing(steps=1, hang=True)
    thread = make_thread(acting)
    thread.start()
    with pytest.raises(errors.EnvironmentError, match="no step for 10000 s; its longest .* 100 s"):
        thread.wait(lambda: False)
    assert not thread.stop()
    acting.released.set()
    assert thread.stop()


def test_a_thread_and_a_learner_that_wait_for_each_other_are_told_so():
    clock = test_step_watch.Clock()
    watch = LookedAtWatch(60.0, clock)

    def may_run():
        clock.seconds += 100.0
        return False

    thread = make_thread(FakeActing(watch=watch), may_run=may_run)
    thread.start()
    with pytest.raises(errors.ActorLearnerError, match="and the thread for the learner to take"):
        thread.wait(lambda: False)
    thread.stop()


class FakeLearning:
    """Learns one train step per turn of an acting side, or raises what it is told to.

    It is its own pacing.
    """

    def __init__(self, acting, turns_ahead=1, error=None):
        self._acting = acting
        self._turns_ahead = turns_ahead
        self._error = error
        self.pacing = self
        self.train_step = 0
        self.rows = 0

    @property
    def environment_step(self):
        return self._acting.turns

    @property
    def train_step_now(self):
        return self.train_step

    def updates_due(self):
        return self._acting.turns - self.train_step

    def steps_allowed(self, environment_step, train_step):
        assert environment_step >= train_step
        return train_step + self._turns_ahead

    def train(self, updates):
        assert updates > 0
        if self._error is not None:
            raise self._error
        self.train_step += updates

    def write_row_if_due(self):
        self.rows += 1


def nothing_to_copy():
    return threads.PolicyCopy([tf.Variable(1.0)], [tf.Variable(0.0)])


def test_every_turn_is_learned_from_even_the_last_one():
    acting = FakeActing()
    learning = FakeLearning(acting)
    threads.run(acting, learning, nothing_to_copy(), environment_steps=20, ended=lambda: False)
    assert acting.turns == learning.train_step == 20
    assert learning.rows == 20  # One turn at a time was allowed.


def test_the_acting_side_gets_the_policy_of_the_last_train_step():
    acting, version, acted_with = FakeActing(), tf.Variable(0), []
    trained = tf.Variable(0)
    copy = threads.PolicyCopy([trained], [version])
    learning = FakeLearning(acting)
    take_turn, train = acting.run, learning.train

    def noting_run():
        acted_with.append(int(version.numpy()))
        take_turn()

    def counting_train(updates):
        train(updates)
        trained.assign_add(updates)

    acting.run, learning.train = noting_run, counting_train
    threads.run(acting, learning, copy, environment_steps=5, ended=lambda: False)
    assert len(acted_with) == 5 and acted_with[0] == 0
    # A train step counts before its policy is published: one behind at most.
    assert all(turn - 1 <= seen <= turn for turn, seen in enumerate(acted_with))


def test_training_that_is_to_end_ends_before_the_steps_are_taken():
    acting = FakeActing()
    learning = FakeLearning(acting)
    threads.run(
        acting,
        learning,
        nothing_to_copy(),
        environment_steps=1_000_000,
        ended=lambda: learning.train_step >= 3,
    )
    assert 3 <= learning.train_step <= acting.turns <= 5
    assert not any(thread.name == "collector" for thread in threading.enumerate())


def test_whatever_broke_first_is_what_is_raised():
    acting = FakeActing(fail_at=1)
    learning = FakeLearning(acting)

    def train(updates):
        assert acting.failed.wait(60.0)
        for thread in threading.enumerate():
            if thread.name == "collector":
                thread.join()
        raise errors.ReplayTimeoutError("no sample came")

    learning.updates_due = lambda: 1
    learning.train = train
    with pytest.raises(ValueError, match="the environment broke") as raised:
        threads.run(acting, learning, nothing_to_copy(), environment_steps=10, ended=lambda: False)
    assert isinstance(raised.value.__context__, errors.ReplayTimeoutError)


def test_a_learner_that_fails_ends_the_thread_too():
    acting = FakeActing()
    learning = FakeLearning(acting, error=errors.ReplayTimeoutError("no sample came"))
    with pytest.raises(errors.ReplayTimeoutError, match="no sample came"):
        threads.run(acting, learning, nothing_to_copy(), environment_steps=10, ended=lambda: False)
    assert acting.turns == 1
    assert not any(thread.name == "collector" for thread in threading.enumerate())


def test_a_policy_can_be_copied_to_its_like_only():
    with pytest.raises(ValueError, match="2 variables cannot be copied to 1"):
        threads.PolicyCopy([tf.Variable(1.0), tf.Variable(2.0)], [tf.Variable(0.0)])


class Policy:
    """All that is needed of one here."""

    def __init__(self, *variables):
        self._variables = variables

    def variables(self):
        return self._variables


def test_what_both_policies_read_is_left_alone():
    shared, versions = tf.Variable(100), (tf.Variable(7), tf.Variable(0))
    weights = (tf.Variable(1.5), tf.Variable(0.0))
    trained, acting = (Policy(shared, weight) for weight in weights)
    copy = threads.PolicyCopy.of_policies(
        (trained, versions[0]), (acting, versions[1]), shared=shared
    )
    shared.assign(200)
    copy.apply()
    assert (weights[1].numpy(), versions[1].numpy(), shared.numpy()) == (1.5, 7, 200)


def test_a_copy_changes_only_between_turns_and_then_as_a_whole():
    source = [tf.Variable([1.0, 2.0]), tf.Variable(3)]
    target = [tf.Variable([0.0, 0.0]), tf.Variable(0)]
    copy = threads.PolicyCopy(source, target)
    source[0].assign([5.0, 6.0])
    copy.apply()
    assert target[0].numpy().tolist() == [1.0, 2.0] and target[1].numpy() == 3
    source[1].assign(7)
    copy.apply()
    assert target[1].numpy() == 3
    copy.publish()
    copy.apply()
    assert target[0].numpy().tolist() == [5.0, 6.0] and target[1].numpy() == 7


def test_a_snapshot_published_while_the_last_is_taken_is_not_lost():
    source, target = [tf.Variable(1)], [tf.Variable(0)]
    publishers = []

    class Interrupted(threads.PolicyCopy):
        """Publishes, in another thread, between the two halves of taking the snapshot."""

        interrupts = False

        @property
        def _snapshot(self):
            snapshot = self._kept
            if self.interrupts:
                self.interrupts = False
                source[0].assign(2)
                publishers.append(threading.Thread(target=self.publish))
                publishers[0].start()
                publishers[0].join(1.0)  # It waits, or it is done.
            return snapshot

        @_snapshot.setter
        def _snapshot(self, value):
            self._kept = value

    copy = Interrupted(source, target)
    copy.interrupts = True
    copy.apply()
    assert target[0].numpy() == 1
    publishers[0].join()
    copy.apply()
    assert target[0].numpy() == 2


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_an_overlapping_run_keeps_the_ratio_to_the_end_and_resumes(tmp_path, ratio):
    rows = []
    settings = dict(overlap=True, updates_per_step=ratio)
    status, environment_steps, train_steps = test_one_process.train(
        tmp_path, rows, environment_steps=1_000, **settings
    )
    assert status == one_process.COMPLETED
    assert environment_steps >= 1_000
    assert train_steps == int((environment_steps - 100) * ratio)
    for row in rows:
        due = max(0, row["environment_steps"] - 100) * ratio
        # A turn is begun while the collector is less than two turns ahead.
        assert due - (plan.TURNS_AHEAD + 1) * (TURN + 1) * ratio <= row["train_steps"] <= due
    assert rows[-1]["return"] == 15 and "version_lag" in rows[-1]
    with one_process.OneProcess(
        test_one_process.make_experiment(environment_steps=1_200, **settings),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
    ) as resumed:
        assert resumed.train_step == train_steps
        assert resumed.run() == one_process.COMPLETED


@pytest.mark.parametrize("collect_steps, ratio", [(None, 0.005), (1, 0.1)])
def test_updates_that_are_rarer_than_turns_come_all_the_same(tmp_path, collect_steps, ratio):
    status, environment_steps, train_steps = test_one_process.train(
        tmp_path,
        overlap=True,
        environment_steps=800,
        evaluation=test_one_process.rated(0),
        collect_steps=collect_steps,
        updates_per_step=ratio,
    )
    assert status == one_process.COMPLETED
    assert train_steps == int((environment_steps - 100) * ratio) > 2


def test_learning_waits_for_a_table_that_wants_more_items_than_a_few_turns_bring(tmp_path):
    def hungry(**kwargs):
        return tables.uniform_table(**kwargs, rate_limiter=tables.min_size(100))

    rows = []
    status, _, train_steps = test_one_process.train(
        tmp_path,
        rows,
        overlap=True,
        environment_steps=1_000,
        replay=lane_replay.LaneReplay(4_000, rows_per_item=1, table=hungry),
    )
    assert status == one_process.COMPLETED and train_steps > 100
    # 100 items of four lanes, boundary steps included, which do not count as steps.
    first = next(row for row in rows if row["train_steps"])
    assert first["environment_steps"] >= 100 * 4 * 5 / 6


def test_an_environment_that_hangs_ends_the_run_with_an_error_that_says_so(tmp_path):
    released = threading.Event()

    def hanging(seed, num_envs=4):
        env = test_one_process.counting(seed, num_envs)
        steps = iter(range(100))
        step = env._step

        def hang_at_last(action):
            if next(steps, None) is None:
                released.wait(120.0)
            return step(action)

        env._step = hang_at_last
        return env

    try:
        with pytest.raises(errors.EnvironmentError, match="Its environment does not return"):
            test_one_process.train(
                tmp_path,
                environment=hanging,
                overlap=True,
                environment_steps=10_000,
                evaluation=test_one_process.rated(0),
                sample_timeout_seconds=2.0,
            )
    finally:
        released.set()
    assert list((tmp_path / "run" / "train" / "checkpoints").glob("ckpt-*.index"))


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
