"""Episode metrics against TF-Agents' and against a plain count."""

import numpy as np
import pytest
from tf_agents.metrics import py_metrics
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


@pytest.mark.parametrize("lanes", [1, 5])
def test_metrics_equal_those_of_tf_agents(lanes):
    ours = actor.collect_metrics(buffer_size=7)[:4]
    theirs = [
        py_metrics.NumberOfEpisodes(),
        py_metrics.EnvironmentSteps(),
        py_metrics.AverageReturnMetric(buffer_size=7),
        py_metrics.AverageEpisodeLengthMetric(buffer_size=7),
    ]
    for step in random_steps(lanes, 200, seed=lanes):
        for metric in ours + theirs:
            metric(step)
    for mine, reference in zip(ours, theirs):
        assert mine.name == reference.name
        np.testing.assert_allclose(mine.result(), reference.result(), rtol=1e-5)


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


def test_a_step_handed_over_by_several_metrics_counts_once():
    steps, episodes = actor.collect_metrics(3)[1], actor.collect_metrics(3)[0]
    shared = actor.collect_metrics(3)
    step = random_steps(4, 1, seed=0)[0]
    for metric in shared:
        metric(step)
    assert shared[1].result() == 4
    assert (steps.result(), episodes.result()) == (0, 0)


def test_state_survives_a_round_trip_through_json():
    import json

    statistics = metrics.EpisodeStatistics(4)
    for step in random_steps(3, 60, seed=1):
        statistics(step)
    restored = metrics.EpisodeStatistics(4)
    restored.restore(json.loads(json.dumps(statistics.state())))
    assert restored.state() == statistics.state()
    assert restored.episodes > 0
