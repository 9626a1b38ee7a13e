"""The learner waits for the final version's evaluation as long as somebody is there to make it."""

from actor_learner.jobs import controller, job, last_evaluation, states
from actor_learner.naming import memory
from tests.jobs import toy_workers


def learner(space):
    return job.Job("learner", 0, "run", memory.MemoryRegistry(space))


def test_without_an_evaluator_there_is_nothing_to_wait_for():
    assert not last_evaluation.LastEvaluation(learner("alone"), 60.0).is_expected(())


def test_an_evaluation_is_expected_while_an_evaluator_lives():
    made = learner("rated")
    evaluator = toy_workers.Running(
        toy_workers.Puppet(), "evaluator", names=memory.MemoryRegistry("rated")
    )
    commander = controller.Controller(made.names, "run")
    commander.wait_for(states.RUNNING, ["evaluator-0"], timeout=toy_workers.DEADLINE)
    awaited = last_evaluation.LastEvaluation(made, 60.0)
    assert awaited.is_expected(())
    assert awaited.is_expected({1}) and not awaited.is_expected({0})
    assert not last_evaluation.LastEvaluation(made, timeout_seconds=-1.0).is_expected(())
    commander.send(states.EXIT, kind="evaluator")
    evaluator.join()
    assert not awaited.is_expected(())
