"""Tests of `actor_learner.learning.evaluation`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from actor_learner.learning import evaluation, learner, triggers
from tests.learning import tiny_agent


def result(*returns, train_step=10, environment_step=100):
    return evaluation.EvaluationResult(
        train_step=train_step,
        environment_step=environment_step,
        returns=np.array(returns, np.float32),
        lengths=np.full(len(returns), 5),
    )


# Results.


def test_a_result_sums_up_its_episodes():
    made = result(1.0, 2.0, 6.0)
    assert (made.mean, made.min, made.max, made.episodes) == (3.0, 1.0, 6.0, 3)
    assert made.std == pytest.approx(np.sqrt(14 / 3), rel=1e-6)


@pytest.mark.parametrize("returns, lengths", [([], []), ([1.0], [1, 2]), ([[1.0]], [[1]])])
def test_a_result_needs_episodes_with_a_return_and_a_length_each(returns, lengths):
    with pytest.raises(ValueError, match="shape"):
        evaluation.EvaluationResult(0, 0, np.array(returns), np.array(lengths))


# When to evaluate.


def test_evaluates_when_due_and_tells_observers_in_order():
    results = iter([result(1.0), result(2.0)])
    seen = []
    trigger = evaluation.EvaluationTrigger(
        lambda: next(results),
        tiny_agent.train_step(),
        10,
        observers=[
            lambda r: seen.append(("first", r.mean)),
            lambda r: seen.append(("second", r.mean)),
        ],
    )
    for step in (5, 10, 15, 20):
        trigger(step)
    assert seen == [("first", 1.0), ("second", 1.0), ("first", 2.0), ("second", 2.0)]


def test_evaluates_by_seconds():
    now = [0.0]
    seen = []
    trigger = evaluation.EvaluationTrigger(
        lambda: result(1.0),
        tiny_agent.train_step(),
        None,
        seconds=20,
        observers=[lambda r: seen.append(now[0])],
        clock=lambda: now[0],
    )
    for step, now[0] in enumerate([19.0, 20.0, 30.0, 41.0]):
        trigger(step)
    assert seen == [20.0, 41.0]


def test_asks_to_stop_at_a_target_that_is_confirmed_after_telling_observers():
    results = iter([result(100.0, 200.0), result(190.0, 210.0), result(204.0, 204.0)])
    seen = []
    trigger = evaluation.EvaluationTrigger(
        lambda: next(results),
        tiny_agent.train_step(),
        10,
        target_return=200,
        observers=[seen.append],
    )
    trigger(10)
    with pytest.raises(triggers.StopTraining) as raised:
        trigger(20)
    assert raised.value.reason == (
        "mean return 200 over 2 episodes reached the target 200, and 204 over 2 others confirmed it"
    )
    assert [r.confirmed and r.confirmed.mean for r in seen] == [None, 204.0]


def test_a_target_that_is_not_confirmed_is_not_reached_and_the_log_says_so(caplog):
    results = iter([result(30.0), result(29.0), result(31.0), result(float("nan"))])
    trigger = evaluation.EvaluationTrigger(
        lambda: next(results), tiny_agent.train_step(), 10, target_return=30
    )
    with caplog.at_level("INFO", logger="absl"):
        trigger(10)
        trigger(20)
    assert next(results, None) is None
    assert "but 29 over 1 others does not confirm it" in caplog.text
    assert "but nan over 1 others does not confirm it" in caplog.text


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_an_evaluation_that_is_not_finite_reaches_no_target(wrong):
    fine = result(5.0)
    for chosen_by, confirmed in ((result(wrong), fine), (fine, result(wrong)), (fine, None)):
        rated = dataclasses.replace(chosen_by, confirmed=confirmed)
        assert not evaluation.reaches(rated, 1.0)
    assert evaluation.reaches(dataclasses.replace(fine, confirmed=fine), 1.0)


def test_a_learner_stops_at_the_target(tmp_path):
    step = tiny_agent.train_step()
    trigger = evaluation.EvaluationTrigger(
        lambda: result(float(step.numpy())), step, 10, target_return=30
    )
    with learner.Learner(
        str(tmp_path), step, tiny_agent.TinyAgent(step), tiny_agent.dataset, triggers=[trigger]
    ) as trained:
        while trained.stop_reason is None and trained.train_step_numpy < 100:
            trained.run(7)
    assert step.numpy() == 42  # Evaluated at 14, 28 and 42: the first at or beyond 30.
    assert trained.stop_reason.startswith("mean return 42 over 1 episodes reached the target 30,")
