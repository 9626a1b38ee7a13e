import math

import pytest

from actor_learner.reporting import progress


def row(seconds, steps, **more):
    return {"seconds": seconds, "environment_steps": steps, **more}


def test_before_the_first_row_nothing_is_known():
    state = progress.Progress(1000)
    assert (state.fraction, state.seconds_left, state.best) == (None, None, None)
    assert state.metrics() == []


def test_time_left_follows_the_pace_between_rows():
    state = progress.Progress(1000)
    state.update(row(10.0, 100))
    assert state.fraction == 0.1
    assert state.seconds_left is None  # One row is no pace yet.
    state.update(row(20.0, 300))  # 20 steps per second.
    assert state.seconds_left == 35.0
    state.update(row(55.0, 1000))
    assert (state.fraction, state.seconds_left) == (1.0, 0.0)


def test_with_one_row_the_reported_rate_is_used():
    state = progress.Progress(1000)
    state.update(row(10.0, 500, environment_steps_per_second=50.0))
    assert state.seconds_left == 10.0


def test_only_the_last_minute_counts_for_the_pace():
    state = progress.Progress(10_000)
    state.update(row(0.0, 5000))  # A fast beginning, forgotten at 61 seconds.
    state.update(row(1.0, 6000))
    state.update(row(61.0, 6600))
    assert state.seconds_left == pytest.approx(340.0)


def test_a_resumed_run_counts_only_its_own_pace():
    state = progress.Progress(2000)
    state.update(row(500.0, 1000))
    state.update(row(510.0, 1100))
    assert state.seconds_left == 90.0


def test_a_standing_run_or_one_without_end_has_no_time_left():
    standing = progress.Progress(1000)
    standing.update(row(1.0, 10))
    standing.update(row(2.0, 10))
    endless = progress.Progress(None)
    endless.update(row(1.0, 10, environment_steps_per_second=5.0))
    assert standing.seconds_left is None
    assert (endless.fraction, endless.seconds_left) == (None, None)


def test_the_best_policys_score_is_shown_and_not_the_luck_of_the_highest_evaluation():
    earlier = {"best_return": 10.0, "best_environment_steps": 50}
    state = progress.Progress(1000, best=earlier)
    state.update(row(1.0, 100, eval_return=99.0, eval_return_std=1.5))
    assert progress.best_policy(state.best) == "10.0 at 50"
    best = {"best_return": 8.0, "best_return_std": 1.5, "best_environment_steps": 200}
    state.update(row(1.0, 200, eval_return=30.0, **best))
    state.update(row(1.0, 400, eval_return=math.nan, **best))
    assert progress.best_policy(state.best) == "8.00 ± 1.50 at 200"
    assert state.latest["environment_steps"] == 400


def test_metrics_are_merged_over_rows_and_formatted():
    state = progress.Progress(60_000)
    state.update(
        row(
            30.0,
            25_200,
            environment_steps_per_second=1234.5,
            train_steps=12_600,
            train_steps_per_second=640.2,
            episode_length=123.4,
            loss=0.012345,
            epsilon=0.1,
            replay_size=25_200,
            samples_per_insert=32.0,
            actor_stepping=0.521,
            actor_inferring=0.3,
            actor_writing=0.004,
            actor_waiting=0.175,
            learner_training=0.9,
            learner_waiting=0.1,
            **{"return": 123.44},
        )
    )
    state.update(row(31.0, 26_000, best_return=487.25, best_return_std=12.14))
    assert state.metrics() == [
        ("environment steps", "26,000, 1.2k/s"),
        ("train steps", "12,600, 640/s"),
        ("return", "123.4"),
        ("episode length", "123.4"),
        ("loss", "0.0123"),
        ("epsilon", "0.1"),
        ("replay size", "25,200"),
        ("samples/insert", "32.00"),
        ("actor's time", "52 % stepping, 30 % inferring, 18 % waiting"),
        ("learner's time", "90 % training, 10 % waiting"),
        ("best policy", "487.2 ± 12.1"),
    ]
