"""Reports of actors add up, whichever of them are lost or come twice."""

import json

import pytest

from actor_learner.acting import metrics
from actor_learner.runs.progress import progress_state, reported_statistics


def report(actor, process, total, episodes=0, returns=(), lengths=(), lag=None):
    return {
        "actor": actor,
        "incarnation": process,
        "total": total,
        "episodes": episodes,
        "version": 0,
        "version_lag_seconds": lag,
        "returns": list(returns),
        "lengths": list(lengths),
    }


@pytest.fixture
def statistics():
    return reported_statistics.ReportedStatistics()


def resumed(statistics):
    """The same as it comes out of a checkpoint."""
    later = reported_statistics.ReportedStatistics()
    later.deserialize(statistics.serialize())
    return later


def test_steps_and_episodes_of_all_actors_add_up(statistics):
    assert statistics.take(report(0, "a", 100, 2, [1.0, 2.0], [50, 50])) == 100
    assert statistics.take(report(1, "b", 30, 1, [9.0], [30])) == 30
    assert statistics.take(report(0, "a", 160, 3, [2.0, 3.0], [50, 60])) == 60
    assert statistics.environment_steps == 190
    assert statistics.episodes == 4
    assert statistics.returns == [2.0, 3.0, 9.0] and statistics.lengths == [50, 60, 30]


def test_a_report_that_was_lost_is_made_good_by_the_next(statistics):
    statistics.take(report(0, "a", 100))
    assert statistics.take(report(0, "a", 300)) == 200


def test_a_report_that_comes_again_changes_nothing(statistics):
    for total in (100, 200):
        statistics.take(report(0, "a", total, episodes=total // 100))
    assert statistics.take(report(0, "a", 200, 2)) == 0
    assert statistics.take(report(0, "a", 100, 1, [7.0], [7])) == 0
    assert (statistics.environment_steps, statistics.episodes) == (200, 2)
    assert statistics.returns == []


def test_a_restarted_actor_counts_from_zero_and_its_predecessor_stays_counted(statistics):
    statistics.take(report(0, "a", 100, 5))
    assert statistics.take(report(0, "b", 40, 1)) == 40
    assert (statistics.environment_steps, statistics.episodes) == (140, 6)


def test_a_resumed_learner_learns_of_what_happened_since_its_checkpoint(statistics):
    statistics.take(report(0, "a", 100, 1, [4.0], [100]))
    saved = resumed(statistics)
    statistics.take(report(0, "a", 500, 9))  # By the learner that dies now.
    assert saved.environment_steps == 100 and saved.returns == [4.0]
    assert saved.take(report(0, "a", 600, 11, [8.0], [10])) == 500
    assert (saved.environment_steps, saved.episodes) == (600, 11)
    assert saved.returns == [8.0] and saved.lengths == [10]


def test_what_a_killed_process_did_not_report_is_counted_once_when_its_successor_does(statistics):
    statistics.take(report(0, "a", 100, 5, [3.0]))
    successor = {**report(0, "b", 20, 1, [4.0]), "earlier": [["a", 164, 7]]}
    assert statistics.take(successor) == 64 + 20
    assert statistics.take({**report(0, "b", 30, 1), "earlier": [["a", 164, 7]]}) == 10
    assert (statistics.environment_steps, statistics.episodes) == (194, 8)


def test_processes_counted_by_jobs_stay_known_while_a_run_is_in_one_process(statistics):
    as_jobs = progress_state.ProgressState(statistics)
    statistics.take(report(0, "a", 100, 5))
    alone = metrics.EpisodeStatistics(10)
    in_one_process = progress_state.ProgressState(alone)
    in_one_process.deserialize(as_jobs.serialize())
    later = reported_statistics.ReportedStatistics()
    progress_state.ProgressState(later).deserialize(in_one_process.serialize())
    assert later.take({**report(0, "b", 1), "earlier": [["a", 100, 5]]}) == 1
    assert (later.environment_steps, later.episodes) == (101, 5)


def test_a_run_of_one_process_goes_on_as_jobs_and_back(statistics):
    alone = metrics.EpisodeStatistics(10)
    alone.restore({"environment_steps": 70, "episodes": 3, "returns": [5.0], "lengths": [20]})
    statistics.restore(json.loads(json.dumps(alone.state())))
    assert (statistics.environment_steps, statistics.episodes) == (70, 3)
    assert statistics.returns == [5.0]
    statistics.take(report(0, "a", 30, 2, [6.0], [10]))
    assert (statistics.environment_steps, statistics.episodes) == (100, 5)
    alone.restore(json.loads(statistics.serialize()))
    assert (alone.environment_steps, alone.episodes) == (100, 5)
    assert list(alone.returns) == [6.0] and list(alone.lengths) == [10]


def test_where_the_time_goes_is_the_mean_over_the_actors_that_are_there(statistics):
    assert statistics.mean_shares() == {}
    for actor, stepping in ((0, 0.5), (1, 0.7)):
        shares = {"stepping": stepping, "waiting": 1.0 - stepping}
        statistics.take({**report(actor, str(actor), 10), "time": shares})
    statistics.take(report(2, "2", 10))  # Of an earlier release.
    assert statistics.mean_shares() == pytest.approx({"stepping": 0.6, "waiting": 0.4})
    statistics.take({**report(1, "1", 20), "time": {"stepping": 0.7}, "last": True})
    assert statistics.mean_shares() == {"stepping": 0.5, "waiting": 0.5}


def test_the_longest_lag_since_it_was_asked_for_counts(statistics):
    assert statistics.take_version_lag_seconds() is None
    for actor, lag in ((0, 0.25), (1, 1.5), (0, 0.0), (2, None)):
        statistics.take(report(actor, str(actor), 10, lag=lag))
    assert statistics.take_version_lag_seconds() == 1.5
    assert statistics.take_version_lag_seconds() is None
    statistics.take(report(1, "1", 20, lag=0.0))
    assert statistics.take_version_lag_seconds() == 0.0


def test_actors_that_are_restarted_for_ever_leave_no_more_than_the_latest_processes(statistics):
    count = 3 * reported_statistics._REMEMBERED_PROCESSES
    statistics.take(report(1, "steady", 7, episodes=2))
    for number in range(count):
        assert statistics.take(report(0, f"process {number}", 10, episodes=1)) == 10
    assert statistics.environment_steps == 10 * count + 7
    assert statistics.episodes == count + 2
    assert len(statistics.state()["processes"]) == reported_statistics._REMEMBERED_PROCESSES
    # What comes again still changes nothing, after a restart of the learner as well.
    later = resumed(statistics)
    assert later.take(report(0, f"process {count - 500}", 10, episodes=1)) == 0
    assert later.take(report(1, "steady", 7, episodes=2)) == 0
    assert later.episodes == count + 2
