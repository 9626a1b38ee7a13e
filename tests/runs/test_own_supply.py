"""Which train steps are due in one process, and how far its collector may go."""

import pytest

from actor_learner import plan as plan_lib
from actor_learner.replay.streams import sample_stream
from actor_learner.runs import own_supply
from actor_learner.support import errors

LANES = 4


def make_plan(**changes):
    settings = dict(
        stream=None,
        experience=sample_stream.Experience(None, LANES, 1, 0.99),
        batch_size=32,
        initial_random_steps=0,
        learn_from=100,
        updates_per_step=0.5,
        group_steps=None,
        collect_steps=50,
    )
    return plan_lib.Plan(**{**settings, **changes})


def replay_supply(reasons):
    plan = make_plan()
    pace = plan.pace(environment_step=0, train_step=0, replay_is_empty=True)
    return own_supply.ReplaySupply(plan, pace, lambda: next(reasons))


def test_train_steps_follow_environment_steps_at_the_ratio():
    supply = replay_supply(iter([None]))
    assert supply.updates_due(101, 0) == 0
    assert supply.updates_due(140, 0) == 20
    assert supply.updates_due(140, 15) == 5
    assert supply.steps_allowed(140, 15) == 100 + 30 + 2 * 52
    supply.require_training(140, 20)


def test_train_steps_begin_when_the_table_can_be_sampled_and_nothing_is_made_up_for():
    supply = replay_supply(iter(["3 of 10 items", "8 of 10 items", None]))
    assert supply.updates_due(140, 0) == 0
    assert supply.steps_allowed(140, 0) == 140 + 2 * 52
    assert supply.updates_due(141, 0) == 0  # Nothing is due: the table is not asked.
    assert supply.updates_due(300, 0) == 0
    with pytest.raises(errors.ReplayError, match="all 300 .* not taken one .*: 8 of 10 items"):
        supply.require_training(300, 0)
    assert supply.updates_due(320, 0) == 10
    assert supply.updates_due(340, 10) == 10  # Asked no more.
    supply.require_training(340, 20)


def test_a_resumed_run_that_ends_before_it_could_learn_is_complete():
    plan = make_plan()
    pace = plan.pace(environment_step=1_000, train_step=450, replay_is_empty=True)
    supply = own_supply.ReplaySupply(plan, pace, lambda: "0 of 1 items")
    assert supply.updates_due(1_200, 450) == 0
    supply.require_training(1_200, 450)


def test_a_train_step_is_due_per_turn_and_collecting_is_at_most_two_turns_ahead():
    turns = [0]
    plan = make_plan(group_steps=8, learn_from=0)
    supply = own_supply.TurnSupply(plan, turns=lambda: turns[0], train_step=30)
    due = []
    allowed = []
    for turns[0], train_step in ((0, 30), (1, 30), (2, 30), (2, 31), (2, 32)):
        due.append(supply.updates_due(500, train_step))
        allowed.append(supply.steps_allowed(500, train_step) - 500)
    assert due == [0, 1, 2, 1, 0]
    assert allowed == [64, 32, 0, 32, 64]
