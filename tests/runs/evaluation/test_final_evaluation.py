"""The learner waits for the final version's evaluation as long as somebody is there to make it."""

import pytest

from actor_learner.jobs import main
from actor_learner.runs.evaluation import final_evaluation

FINAL = 7


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def awaited(timeout_seconds=600.0, clock=None, num_evaluators=0):
    return final_evaluation.FinalEvaluation(
        FINAL, timeout_seconds, num_evaluators=num_evaluators, clock=clock or Clock()
    )


def test_without_an_evaluator_there_is_nothing_to_wait_for():
    made = awaited()
    assert made.version == FINAL
    assert not made.is_expected([], set())


def test_an_evaluation_is_expected_while_an_evaluator_is_present_and_has_not_rated():
    made = awaited()
    assert made.is_expected([0], set())
    assert made.is_expected([0], {1})
    assert not made.is_expected([0], {0})
    assert made.is_expected([0, 1], {0})
    assert not made.is_expected([0, 1], {0, 1})


def test_one_that_leaves_once_its_result_has_come_is_not_waited_for():
    made = awaited()
    assert made.is_expected([0], set())
    assert not made.is_expected([], {0})


def test_one_that_has_gone_without_a_result_has_time_to_come_back():
    clock = Clock()
    made = awaited(clock=clock)
    assert made.is_expected([0], set())
    clock.now += final_evaluation.RESTART_SECONDS - 1.0
    assert made.is_expected([], set())
    assert made.is_expected([0], set())
    clock.now += 2.0
    assert made.is_expected([], set())  # Once more: its time begins again.
    clock.now += final_evaluation.RESTART_SECONDS
    assert not made.is_expected([], set())


def test_as_many_as_the_run_is_known_to_have_are_waited_for_even_unseen():
    clock = Clock()
    made = awaited(timeout_seconds=300.0, clock=clock, num_evaluators=2)
    clock.now += 2 * final_evaluation.RESTART_SECONDS
    assert made.is_expected([], set())
    assert made.is_expected([], {0}) and made.is_expected([], {1})
    assert not made.is_expected([], {0, 1})
    assert made.is_expected([2], {0, 1})  # One more than was known.


def test_one_that_was_told_to_end_and_says_so_is_not_waited_for():
    made = awaited(num_evaluators=2)
    assert made.is_expected([0, 1], {0})
    assert not made.is_expected([0], {0}, left={1})


@pytest.mark.parametrize("num_evaluators, present", [(0, [0, 1]), (2, [])])
def test_they_are_waited_for_no_longer_than_the_timeout(caplog, num_evaluators, present):
    clock = Clock()
    made = awaited(timeout_seconds=300.0, clock=clock, num_evaluators=num_evaluators)
    clock.now += 300.0
    assert made.is_expected(present, {1})
    clock.now += 1.0
    assert not made.is_expected(present, {1})
    assert "within 300 s; these have: evaluator-1." in caplog.text


def test_the_learner_refuses_a_number_of_evaluators_that_is_none(capfd):
    assert main.run(["learner", "--gin_file=dqn_cartpole", "--run=x/y", "--num_evaluators=-1"]) == 2
    assert "error: --num_evaluators=-1 is negative: use 0 or more" in capfd.readouterr().err
