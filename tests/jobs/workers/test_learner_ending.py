"""What a learner waits for after its last train step, by a clock of the test."""

import types

import pytest

from actor_learner.jobs.workers import learner_ending
from actor_learner.runs.evaluation import final_evaluation


class Waiting:
    """An ending, and all that it looks at."""

    def __init__(self, **options):
        self.now = 1_000.0
        self.inbox = types.SimpleNamespace(
            actors=set(),
            lost=set(),
            left=set(),
            lets_go=False,
            let_go=set(),
            present=lambda kind: {"evaluator": self.evaluators, "learner-others": self.others}[
                kind
            ],
        )
        self.evaluators, self.raters, self.others = set(), set(), set()
        self.ending = learner_ending.Ending(
            7, 500, evaluation_seconds=300.0, num_evaluators=0, clock=lambda: self.now, **options
        )

    def is_over(self, seconds=0.0):
        self.now += seconds
        evaluations = types.SimpleNamespace(raters=lambda version: {7: self.raters}[version])
        return self.ending.is_over(self.inbox, evaluations)


@pytest.mark.parametrize("who", ["actors", "lost"])
def test_actors_are_waited_for_until_their_last_report_or_for_forty_seconds(who):
    waiting = Waiting()
    getattr(waiting.inbox, who).add("actor-0")
    assert not waiting.is_over(40.0)
    assert waiting.is_over(0.1)
    waiting = Waiting()
    getattr(waiting.inbox, who).add("actor-0")
    assert not waiting.is_over(1.0)
    getattr(waiting.inbox, who).clear()
    assert waiting.is_over(0.1)


def test_actors_of_a_predecessor_have_ten_seconds_to_come_back():
    waiting = Waiting(may_rejoin=True)
    assert not waiting.is_over(10.0)
    assert waiting.is_over(0.1)


def test_evaluators_are_waited_for_until_they_have_rated_the_final_version_or_time_is_up():
    waiting = Waiting()
    waiting.evaluators = {0, 1}
    assert not waiting.is_over(1.0)
    waiting.raters = {0}
    assert not waiting.is_over(250.0)
    waiting.raters = {0, 1}
    assert waiting.is_over(1.0)
    waiting = Waiting()
    waiting.evaluators = {0}
    assert not waiting.is_over(final_evaluation.RESTART_SECONDS)
    assert waiting.is_over(300.0)


def test_learners_of_further_policies_are_let_go_when_everybody_else_is_done():
    waiting = Waiting(policies=["others"])
    waiting.others, waiting.evaluators = {0}, {0}
    assert not waiting.is_over(1.0) and not waiting.inbox.lets_go
    waiting.raters = {0}
    assert not waiting.is_over(1.0) and waiting.inbox.lets_go
    assert not waiting.is_over(100.0)  # It is there, and has yet to save.
    waiting.inbox.let_go.add("others")
    assert waiting.is_over(0.1)


def test_a_learner_that_does_not_come_back_is_waited_for_as_long_as_a_restart_takes():
    waiting = Waiting(policies=["others"])
    assert not waiting.is_over(1.0)
    assert not waiting.is_over(40.0)
    assert waiting.is_over(0.1)
    waiting = Waiting(policies=["others"])
    waiting.others = {0}
    assert not waiting.is_over(1.0)
    assert not waiting.is_over(300.0)
    assert waiting.is_over(0.1)
