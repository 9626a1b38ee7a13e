"""The learner waits for the final version's evaluation as long as somebody is there to make it."""

import pytest

from actor_learner.jobs import controller, job, last_evaluation, names, states, status
from actor_learner.naming import memory, name_errors
from tests.jobs import toy_workers

FINAL = 7


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def learner(space):
    return job.Job("learner", 0, "run", memory.MemoryRegistry(space))


def awaited(made, timeout_seconds=60.0, clock=None):
    return last_evaluation.LastEvaluation(made, FINAL, timeout_seconds, clock=clock or Clock())


def expected(last, raters=()):
    return last.is_expected(lambda: raters)


def show(made, state, rated=None):
    """Has evaluator 0 be in this state."""
    shown = status.Status("evaluator", 0, state, details={last_evaluation.RATED: rated})
    made.names.add(names.status("run", "evaluator", 0), shown.to_json(), replace=True)
    if state in states.LIVE:
        made.names.add(names.heartbeat("run", "evaluator", 0), "here", replace=True)


def test_without_an_evaluator_there_is_nothing_to_wait_for():
    assert not expected(awaited(learner("alone")))


def test_an_evaluation_is_expected_while_an_evaluator_lives():
    made = learner("rated")
    evaluator = toy_workers.Running(
        toy_workers.Puppet(), "evaluator", names=memory.MemoryRegistry("rated")
    )
    commander = controller.Controller(made.names, "run")
    commander.wait_for(states.RUNNING, ["evaluator-0"], timeout=toy_workers.DEADLINE)
    last = awaited(made)
    assert expected(last)
    assert expected(last, {1}) and not expected(last, {0})
    assert not expected(awaited(made, timeout_seconds=-1.0))
    commander.send(states.EXIT, kind="evaluator")
    evaluator.join()
    assert not expected(last)


def test_a_result_is_not_missed_that_comes_while_results_are_taken():
    # Taking results may take long: it keeps the best policy. An evaluator whose result comes
    # meanwhile, and which has ended when that is over, is still waited for.
    made = learner("meanwhile")
    show(made, states.RUNNING)

    def take_slowly():
        show(made, states.COMPLETED, rated=FINAL)
        return set()

    assert awaited(made).is_expected(take_slowly)


def test_the_result_of_one_that_has_ended_may_still_be_under_way_for_a_while():
    made, clock = learner("under way"), Clock()
    show(made, states.COMPLETED, rated=FINAL)
    last = awaited(made, clock=clock)
    assert expected(last)
    assert not expected(last, {0})
    clock.now += last_evaluation.ARRIVAL_SECONDS
    assert not expected(last)


@pytest.mark.parametrize("rated", [None, FINAL - 1])
def test_one_that_has_ended_without_the_final_version_is_not_waited_for(rated):
    made = learner(f"ended {rated}")
    show(made, states.COMPLETED, rated=rated)
    assert not expected(awaited(made))


def test_one_that_has_failed_has_time_to_come_back():
    made, clock = learner("failed"), Clock()
    show(made, states.ERROR)
    last = awaited(made, clock=clock)
    assert expected(last)
    clock.now += last_evaluation.RESTART_SECONDS - 1.0
    assert expected(last)
    show(made, states.CONFIGURING)
    clock.now += 2.0
    assert expected(last)
    show(made, states.ERROR)  # Once more: its time begins anew.
    assert expected(last)
    clock.now += last_evaluation.RESTART_SECONDS
    assert not expected(last)


def test_those_known_last_count_while_the_registry_does_not_answer(monkeypatch):
    made = learner("silent")
    show(made, states.RUNNING)
    last = awaited(made)
    assert expected(last)

    def fails(*args):
        raise name_errors.RegistryUnavailableError("gone")

    monkeypatch.setattr(made.names, "find_subtree", fails)
    assert expected(last)
    assert not expected(last, {0})
    assert not expected(awaited(made))
