"""Tests of `actor_learner.learning.train_loop`."""

import pytest
import tensorflow as tf

from actor_learner.learning import train_calls, train_loop
from actor_learner.reporting import row_limit


def may_record(step, interval):
    return step % interval == 0 or (step + 1) % interval == 0


@pytest.mark.parametrize("interval", [1, 2, 3, 17, 18, 19, 40, 1000])
@pytest.mark.parametrize("iterations", [1, 2, 15, 16, 17, 100, 2500])
def test_no_iteration_that_could_record_is_in_a_quiet_stretch(interval, iterations):
    for first_step in (0, 1, interval - 1, interval, interval + 1, 995, 12_345):
        stretches = train_loop.plan_stretches(first_step, iterations, interval)
        assert sum(stretch.iterations for stretch in stretches) == iterations
        assert all(stretch.iterations > 0 for stretch in stretches)
        step = first_step
        for stretch in stretches:
            steps = range(step, step + stretch.iterations)
            if not stretch.records:
                assert not any(may_record(s, interval) for s in steps)
            else:
                assert any(may_record(s, interval) for s in steps)
            step += stretch.iterations


def test_an_agent_that_counts_in_another_way_is_found_out_and_recorded_throughout():
    planner = train_loop.StretchPlanner(summary_interval=1_000)
    plan = planner.plan(1, 300)
    assert plan == [(True, 1), (False, 299)]  # The first iteration shows how the agent counts.
    assert planner.as_planned(plan[0], 1)
    assert planner.plan(2, 299) == [(False, 299)]
    assert not planner.as_planned(plan[1], 2 * 299)
    assert planner.plan(600, 300) == [(True, 300)]
    assert planner.as_planned(train_loop.Stretch(True, 300), 600)
    assert planner.as_planned(train_loop.Stretch(True, 300), 300)
    assert planner.plan(600, 300) == [(True, 300)]  # It is not trusted again.


def test_summaries_become_fewer_in_a_run_of_very_many(monkeypatch):
    monkeypatch.setattr(row_limit, "row_limit", lambda: 10)
    planner = train_loop.StretchPlanner(summary_interval=1_000)
    planner.as_planned(train_loop.Stretch(True, 1), 1)
    recorded = []
    for step in range(0, 40_000, 100):
        at = step
        for stretch in planner.plan(step, 100):
            if stretch.records:
                steps = range(at, at + stretch.iterations)
                recorded += [s + 1 for s in steps if (s + 1) % 1_000 == 0]
            at += stretch.iterations
    assert recorded[:10] == list(range(1_000, 11_000, 1_000))
    # Then every second, every third, ... of them.
    assert recorded[10:15] == [12_000, 14_000, 16_000, 18_000, 20_000]
    assert recorded[15:] == [21_000, 24_000, 27_000, 30_000, 32_000, 36_000, 40_000]


@pytest.mark.parametrize(
    "first_step, iterations, expected",
    [
        (1, 100, [(False, 100)]),  # Nothing is due.
        (0, 1, [(True, 1)]),
        (999, 1, [(True, 1)]),
        (950, 200, [(False, 49), (True, 2), (False, 149)]),
        (990, 20, [(True, 20)]),  # Both quiet parts are too short for a call of their own.
        (0, 1000, [(True, 1), (False, 998), (True, 1)]),
    ],
)
def test_most_runs_are_one_call_and_those_with_a_summary_at_most_three(
    first_step, iterations, expected
):
    assert train_loop.plan_stretches(first_step, iterations, 1000) == expected


def test_short_intervals_use_one_recording_call():
    assert train_loop.plan_stretches(3, 1000, 10) == [(True, 1000)]


def counter_loop():
    total = tf.Variable(0.0)

    def step(iterator):
        number = next(iterator)
        total.assign_add(number)
        return {"total": total.read_value(), "none": None, "number": number}

    return train_loop.TrainLoop(
        step, reduce=lambda losses: losses, train_step=tf.Variable(0, dtype=tf.int64)
    ), total


def numbers():
    return iter(tf.data.Dataset.range(1, 1_000_000).map(lambda n: tf.cast(n, tf.float32)))


@pytest.mark.parametrize("bind", [False, True])
def test_any_number_of_iterations_is_one_trace_and_returns_the_last_losses(bind):
    loop, total = counter_loop()
    iterator = numbers()
    done = 0
    for iterations in (1, 2, 7, 100, 1):
        losses = loop.run(iterations, iterator, 10, bind=bind).losses
        done += iterations
        assert losses["number"].numpy() == done
        assert losses["none"] is None
        assert losses["total"].numpy() == total.numpy() == done * (done + 1) / 2
    assert loop.trace_count == 1


def test_another_iterator_of_the_same_type_does_not_trace_again():
    loop, total = counter_loop()
    for bind in (True, False, True):
        loop.run(4, numbers(), 10, bind=bind)
    assert total.numpy() == 30
    assert loop.trace_count == 1


def test_tracing_takes_no_data():
    loop, _ = counter_loop()
    iterator = numbers()
    loop.trace(iterator)
    assert loop.trace_count == 1
    assert next(iterator).numpy() == 1


def test_losses_of_unknown_size_are_returned_as_they_are():
    def step(iterator):
        return tf.range(next(iterator))

    loop = train_loop.TrainLoop(
        step, reduce=lambda losses: losses, train_step=tf.Variable(0, dtype=tf.int64)
    )
    iterator = iter(tf.data.Dataset.range(2, 100))
    assert loop.run(1, iterator, 10).losses.numpy().tolist() == [0, 1]
    assert loop.run(3, iterator, 10).losses.numpy().tolist() == [0, 1, 2, 3, 4]


def test_runs_without_graphs_when_tensorflow_is_told_to():
    loop, total = counter_loop()
    tf.config.run_functions_eagerly(True)
    try:
        losses = loop.run(3, numbers(), 10).losses
    finally:
        tf.config.run_functions_eagerly(False)
    assert losses["number"].numpy() == 3
    assert total.numpy() == 6
    assert loop.trace_count == 0


def test_a_step_that_is_forgotten_while_another_thread_asks_is_still_a_step():
    read = iter([5, None])  # What a second look would find.

    class Running(train_calls.TrainCalls):
        _step = property(lambda self: next(read))

    assert Running.__new__(Running).step_now() == 5
