"""Episode metrics against TF-Agents' and against a plain count."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.metrics import py_metric, py_metrics
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.acting import actor, metrics

FIRST, MID, LAST = 0, 1, 2


def random_steps(lanes, length, seed):
    """Trajectories of lanes whose episodes end at random, boundary steps included."""
    generator = np.random.default_rng(seed)
    step_type = np.full(lanes, FIRST, np.int32)
    steps = []
    for _ in range(length):
        ends = generator.random(lanes) < 0.2
        next_type = np.where(step_type == LAST, FIRST, np.where(ends, LAST, MID)).astype(np.int32)
        reward = np.where(step_type == LAST, 0.0, generator.normal(size=lanes)).astype(np.float32)
        steps.append(
            trajectory_lib.Trajectory(
                step_type, (), (), (), next_type, reward, np.ones(lanes, np.float32)
            )
        )
        step_type = next_type
    return steps


@pytest.mark.parametrize("lanes, length", [(1, 300), (5, 300), (700, 70)])
def test_metrics_equal_those_of_tf_agents(lanes, length):
    """Over more steps than are counted at once."""
    ours = actor.collect_metrics(buffer_size=7)[:4]
    theirs = [
        py_metrics.NumberOfEpisodes(),
        py_metrics.EnvironmentSteps(),
        py_metrics.AverageReturnMetric(buffer_size=7),
        py_metrics.AverageEpisodeLengthMetric(buffer_size=7),
    ]
    for step in random_steps(lanes, length, seed=lanes):
        for metric in ours + theirs:
            metric(step)
    for mine, reference in zip(ours, theirs):
        assert mine.name == reference.name
        np.testing.assert_allclose(mine.result(), reference.result(), rtol=1e-5, atol=1e-6)


def test_an_unbatched_step_counts_like_one_lane():
    batched, unbatched = metrics.EpisodeStatistics(5), metrics.EpisodeStatistics(5)
    for step in random_steps(1, 100, seed=3):
        batched(step)
        unbatched(
            step._replace(
                step_type=step.step_type[0],
                next_step_type=step.next_step_type[0],
                reward=step.reward[0],
            )
        )
    assert unbatched.state() == batched.state()
    assert batched.episodes > 5


def test_minimum_and_maximum_are_of_the_window():
    statistics = metrics.EpisodeStatistics(buffer_size=2)
    smallest, largest = metrics.MinReturn(statistics), metrics.MaxReturn(statistics)
    assert (smallest.result(), largest.result()) == (0.0, 0.0)
    for reward in (100.0, -3.0, 5.0):
        for kind, next_kind, r in ((FIRST, LAST, reward), (LAST, FIRST, 0.0)):
            step = trajectory_lib.Trajectory(kind, (), (), (), next_kind, np.float32(r), 1.0)
            smallest(step)
            largest(step)
    assert (smallest.result(), largest.result()) == (-3.0, 5.0)


def test_more_episodes_than_the_window_holds_may_end_at_once():
    metric_list = actor.collect_metrics(3)
    step = trajectory_lib.Trajectory(
        step_type=np.zeros(5, np.int32),
        observation=np.zeros(5, np.float32),
        action=np.zeros(5, np.int64),
        policy_info=(),
        next_step_type=np.array([2, 2, 1, 2, 2], np.int32),
        reward=np.arange(5, dtype=np.float32),
        discount=np.ones(5, np.float32),
    )
    metric_list[0](step)
    statistics = metric_list[0].statistics
    assert statistics.episodes == 4
    assert list(statistics.returns) == [1.0, 3.0, 4.0]
    assert list(statistics.lengths) == [1, 1, 1]


def test_an_actor_hands_a_step_to_statistics_once_and_to_metrics_of_other_kinds():
    class Doubled(metrics.AverageReturn):
        def __call__(self, trajectory):
            seen.append(trajectory)
            super().__call__(trajectory)

    seen = []
    shared = metrics.EpisodeStatistics(10)
    first, second = metrics.AverageReturn(shared), metrics.MaxReturn(shared)
    doubled = Doubled()
    assert metrics.observer_of(first) is metrics.observer_of(second) is shared
    assert metrics.observer_of(doubled) is doubled
    assert metrics.observer_of(seen.append) == seen.append


def test_a_step_handed_over_by_several_metrics_counts_once():
    steps, episodes = actor.collect_metrics(3)[1], actor.collect_metrics(3)[0]
    shared = actor.collect_metrics(3)
    step = random_steps(4, 1, seed=0)[0]
    for metric in shared:
        metric(step)
    assert shared[1].result() == 4
    assert (steps.result(), episodes.result()) == (0, 0)


def test_state_survives_a_round_trip_through_json():
    statistics = metrics.EpisodeStatistics(4)
    for step in random_steps(3, 60, seed=1):
        statistics(step)
    restored = metrics.EpisodeStatistics(4)
    restored.restore(json.loads(json.dumps(statistics.state())))
    assert restored.state() == statistics.state()
    assert restored.episodes > 0


def test_the_metrics_of_actors_are_those_of_tf_agents():
    collecting, evaluating = actor.collect_metrics(3), actor.eval_metrics(3)
    for metric, theirs in zip(
        collecting + evaluating,
        [
            py_metrics.NumberOfEpisodes,
            py_metrics.EnvironmentSteps,
            py_metrics.AverageReturnMetric,
            py_metrics.AverageEpisodeLengthMetric,
            py_metric.PyStepMetric,
            py_metric.PyStepMetric,
            py_metrics.AverageReturnMetric,
            py_metrics.AverageEpisodeLengthMetric,
        ],
    ):
        assert isinstance(metric, theirs)
        assert isinstance(metric, py_metric.PyStepMetric)
        assert metric.prefix == "Metrics"


def test_a_checkpoint_keeps_the_metrics(tmp_path):
    kept, restored = actor.collect_metrics(4), actor.collect_metrics(4)
    for step in random_steps(3, 60, seed=1):
        for metric in kept:
            metric(step)
    path = tf.train.Checkpoint(metrics=kept).save(str(tmp_path / "metrics"))
    tf.train.Checkpoint(metrics=restored).restore(path).assert_consumed()
    assert [metric.result() for metric in restored] == [metric.result() for metric in kept]
    assert kept[0].result() > 4


def test_a_metric_is_reset_without_the_others():
    metrics_ = episodes, steps, average, length, smallest, _ = actor.collect_metrics(4)
    for step in random_steps(3, 60, seed=2):
        for metric in metrics_:
            metric(step)
    before = [metric.result() for metric in metrics_]
    average.reset()
    assert (average.result(), smallest.result()) == (0.0, 0.0)  # They read the same window.
    assert [episodes.result(), steps.result(), length.result()] == [*before[:2], before[3]]
    steps.reset(environment_steps=7)
    assert (steps.result(), episodes.result()) == (7, before[0])
    episodes.reset()
    length.reset()
    assert (episodes.result(), length.result()) == (0, 0.0)


def test_the_window_can_be_read_and_added_to():
    average = metrics.AverageReturn(buffer_size=3)
    average.add_to_buffer([1.0, 2.0, 3.0, 7.0])
    assert average.result() == 4.0
    assert (average.data.mean(), average.data.last, len(average.data)) == (4.0, 7.0, 3)


def test_metrics_are_aggregated_and_logged_as_those_of_tf_agents(caplog):
    ours = [metrics.AverageReturn(), metrics.AverageReturn()]
    for metric, value in zip(ours, (2.0, 4.0)):
        metric.add_to_buffer([value])
    assert metrics.AverageReturn.aggregate(ours) == 3.0
    with caplog.at_level("INFO", logger="absl"):
        ours[1].log()
    assert "Metrics/AverageReturn = 4.0" in caplog.text


def test_summaries_are_built_from_keywords_and_plotted_against_another_metric(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        steps, average = metrics.EnvironmentSteps(), metrics.AverageReturn()
        average.add_to_buffer([5.0])
        steps.reset(environment_steps=40)
        writer = tf.summary.create_file_writer(str(tmp_path))
        with writer.as_default(), tf.summary.record_if(True):
            operations = [
                metric.tf_summaries(train_step=tf.constant(3, tf.int64), step_metrics=[steps])
                for metric in (steps, average)
            ]
        session.run([writer.init()])
        py_metric.run_summaries([steps, average], session)
        session.run(writer.flush())
    assert all(operation is not None for operation in operations)
    assert scalars(tmp_path) == {
        ("Metrics/EnvironmentSteps", 3): 40.0,
        ("Metrics/AverageReturn", 3): 5.0,
        ("Metrics_vs_EnvironmentSteps/AverageReturn", 40): 5.0,
    }


def scalars(directory):
    """By tag and step, what the only event file in a directory holds."""
    (path,) = directory.glob("events.out.tfevents.*")
    return {
        (value.tag, event.step): float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }


def counted_one_by_one(steps):
    """Steps, and returns and lengths of all episodes, by the definition."""
    taken, returns, lengths = 0, [], []
    running: dict[int, list[float]] = {}
    for step in steps:
        for lane, (kind, next_kind) in enumerate(zip(step.step_type, step.next_step_type)):
            if kind == LAST:
                continue
            taken += 1
            if kind == FIRST:
                running[lane] = []
            running[lane].append(float(step.reward[lane]))
            if next_kind == LAST:
                returns.append(sum(running[lane]))
                lengths.append(len(running[lane]))
    return taken, returns, lengths


@pytest.mark.parametrize("asked_every", [1, 5, 32, 1000])
@pytest.mark.parametrize("lanes", [1, 4])
def test_counts_do_not_depend_on_when_they_are_asked_for(lanes, asked_every):
    steps = random_steps(lanes, 150, seed=lanes)
    statistics = metrics.EpisodeStatistics(buffer_size=1000)
    for number, step in enumerate(steps):
        statistics(step)
        if number % asked_every == 0:
            taken, returns, lengths = counted_one_by_one(steps[: number + 1])
            assert statistics.environment_steps == taken
            assert statistics.episodes == len(returns)
    taken, returns, lengths = counted_one_by_one(steps)
    assert (statistics.environment_steps, statistics.episodes) == (taken, len(returns))
    np.testing.assert_allclose(list(statistics.returns), returns, rtol=1e-12, atol=1e-12)
    assert list(statistics.lengths) == lengths


def test_steps_whose_arrays_are_written_again_were_copied():
    statistics = metrics.EpisodeStatistics()
    step = random_steps(3, 1, seed=0)[0]._replace(
        next_step_type=np.full(3, MID, np.int32), reward=np.ones(3, np.float32)
    )
    statistics(step)
    step.reward[:] = 100.0
    statistics(
        step._replace(
            step_type=np.full(3, MID, np.int32),
            next_step_type=np.full(3, LAST, np.int32),
            reward=np.full(3, 2.0, np.float32),
        )
    )
    assert list(statistics.returns) == [3.0, 3.0, 3.0]


def test_other_lanes_begin_anew():
    statistics = metrics.EpisodeStatistics()
    for step in random_steps(2, 3, seed=5):
        statistics(step)
    for kind, next_kind in ((FIRST, MID), (MID, LAST)):
        one = np.full(4, kind, np.int32), np.full(4, next_kind, np.int32), np.ones(4, np.float32)
        statistics(trajectory_lib.Trajectory(one[0], (), (), (), one[1], one[2], one[2]))
    assert list(statistics.returns)[-4:] == [2.0] * 4
    assert list(statistics.lengths)[-4:] == [2] * 4
