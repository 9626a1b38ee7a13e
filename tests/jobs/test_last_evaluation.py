"""The learner waits for the final version's evaluation as long as somebody is there to make it."""

import pytest

from actor_learner.jobs import (
    controller,
    job,
    last_evaluation,
    lease_entry,
    main,
    names,
    states,
    status,
)
from actor_learner.naming import memory, name_errors
from tests.jobs import toy_workers

FINAL = 7


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def learner(space):
    return job.Job("learner", 0, "run", memory.MemoryRegistry(space))


def awaited(made, timeout_seconds=600.0, clock=None, num_evaluators=0):
    return last_evaluation.LastEvaluation(
        made, FINAL, timeout_seconds, clock=clock or Clock(), num_evaluators=num_evaluators
    )


def expected(last, raters=()):
    return last.is_expected(lambda: raters)


def show(made, state, rated=None, index=0):
    """Has an evaluator be in this state."""
    lease = names.lease("run", "evaluator", index)
    lost = state == states.LOST
    shown = status.Status(
        "evaluator",
        index,
        states.RUNNING if lost else state,
        details={last_evaluation.RATED: rated},
    )
    made.names.add(names.record("run", "evaluator", index), shown.to_json(), replace=True)
    if state in states.LIVE:
        entry = lease_entry.LeaseEntry.of_this_process("")
        made.names.add(lease, entry.to_json(), replace=True)
    else:
        made.names.clear_subtree(lease)


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


@pytest.mark.parametrize("gone", [states.ERROR, states.LOST])
def test_one_that_has_failed_or_is_lost_has_time_to_come_back(gone):
    made, clock = learner(f"is {gone}"), Clock()
    show(made, gone)
    last = awaited(made, clock=clock)
    assert expected(last)
    clock.now += last_evaluation.RESTART_SECONDS - 1.0
    assert expected(last)
    show(made, states.CONFIGURING)
    clock.now += 2.0
    assert expected(last)
    show(made, gone)  # Once more: its time begins anew.
    assert expected(last)
    clock.now += last_evaluation.RESTART_SECONDS
    assert not expected(last)


def test_as_many_as_the_run_is_known_to_have_are_waited_for_even_unseen():
    made, clock = learner("declared"), Clock()
    show(made, states.LOST)
    last = awaited(made, timeout_seconds=300.0, clock=clock, num_evaluators=2)
    clock.now += 2 * last_evaluation.RESTART_SECONDS
    assert expected(last)
    assert expected(last, {0}) and expected(last, {1})
    assert not expected(last, {0, 1})
    show(made, states.COMPLETED)  # Ended by a controller, say.
    show(made, states.COMPLETED, index=1)
    assert not expected(last)
    show(made, states.RUNNING)
    assert expected(last)
    clock.now += 300.0
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


def test_the_learner_refuses_a_number_of_evaluators_that_is_none(capfd):
    assert main.run(["learner", "--gin_file=dqn_cartpole", "--run=x/y", "--num_evaluators=-1"]) == 2
    assert "error: --num_evaluators must be 0 or more, got -1" in capfd.readouterr().err
