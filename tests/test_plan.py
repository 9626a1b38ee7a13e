"""The ratio of train steps to environment steps, and how far actors may go without the learner."""

import itertools

import pytest

from actor_learner import plan as plan_lib
from actor_learner.replay.streams import sample_stream

RATIOS = (1e-4, 0.005, 1 / 128, 0.1, 0.25, 0.3, 1 / 3, 0.7, 1.0, 1.1, 2.0, 7.0)


def make_plan(lanes, collect_steps, ratio, group_steps=None):
    return plan_lib.Plan(
        stream=None,
        experience=sample_stream.Experience(None, lanes, 1, 0.99),
        batch_size=32,
        initial_random_steps=0,
        learn_from=100,
        updates_per_step=ratio,
        group_steps=group_steps,
        collect_steps=collect_steps,
    )


def test_a_turn_is_a_whole_number_of_steps_of_every_lane():
    assert make_plan(4, 64, 1.0).steps_per_turn == 64
    assert make_plan(4, 50, 1.0).steps_per_turn == 52
    assert make_plan(16, 1, 1.0).steps_per_turn == 16
    assert make_plan(4, 50, 1.0, group_steps=8).steps_per_turn == 32


def test_actors_may_be_two_turns_ahead_unless_updates_are_rarer_than_that():
    assert make_plan(4, 50, 0.5).steps_ahead() == 2 * 52
    assert make_plan(4, 64, 0.5).steps_ahead(num_actors=3) == 2 * 64 * 3
    assert make_plan(4, 64, 0.005).steps_ahead() == 200 + 1 + 64


@pytest.mark.parametrize(
    "lanes, collect_steps, num_actors",
    list(itertools.product((1, 4, 7, 64), (1, 5, 64, 100), (1, 3))),
)
def test_an_update_is_due_wherever_actors_must_stop(lanes, collect_steps, num_actors):
    for ratio in RATIOS:
        plan = make_plan(lanes, collect_steps, ratio)
        pace = plan.pace(environment_step=1_234, train_step=77, replay_is_empty=False)
        for taken in (*range(300), 10_007, 1_000_003, 30_000_001):
            train_step = pace.train_step + taken
            stop = pace.steps_until(train_step) + plan.steps_ahead(num_actors)
            assert pace.updates_due(stop) > train_step, (ratio, taken)


@pytest.mark.parametrize("ratio", RATIOS)
def test_no_more_updates_are_due_than_the_ratio_allows(ratio):
    pace = plan_lib.Pace(learn_from=50, train_step=3, updates_per_step=ratio)
    for environment_step in (*range(400), 123_457):
        taken = pace.updates_due(environment_step) - 3
        assert 0 <= taken <= max(0, environment_step - 50) * ratio < taken + 1
