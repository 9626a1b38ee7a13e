"""When an actor acts, with which policy, and when it ends, by what its learner says."""

import time
import uuid

import numpy as np
import pytest

from actor_learner import experiment as experiment_lib
from actor_learner.jobs import job
from actor_learner.jobs.workers import actor, replay
from actor_learner.naming import memory
from actor_learner.support import errors
from tests.jobs import jobs_in_process

pytestmark = pytest.mark.timeout(400)

STEPS, RANDOM_STEPS, MOST_LAG = 100_000, 1_000, 5
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    f"Experiment.initial_random_steps = {RANDOM_STEPS}",
    f"Staleness.max_version_lag = {MOST_LAG}",
    "Staleness.when_lagging = 'wait'",
    "Experiment.collect_steps = 64",
    "GymnasiumEnvironment.num_envs = 4",
    "dqn.fc_layer_params = (4,)",
    "dqn.epsilon_start = 0.0",
    "dqn.epsilon_end = 0.0",
    "Jobs.patience_seconds = 60",
)


@pytest.fixture(scope="module")
def space():
    with jobs_in_process.configured("dqn_cartpole", *BINDINGS):
        name = uuid.uuid4().hex
        serving = jobs_in_process.configure(replay.ReplayJob(), "replay", name)
        yield name
        serving.close()
        jobs_in_process.end(serving.job)


@pytest.fixture
def learner(space):
    made = jobs_in_process.Learner(space)
    yield made
    made.close()


@pytest.fixture
def start(space):
    """Starts an actor."""
    started = []

    def make(**options):
        started.append(jobs_in_process.configure(actor.ActorJob(), "actor", space, **options))
        return started[-1]

    yield make
    for made in started:
        made.job.stopping.set()
        made.close()
        jobs_in_process.end(made.job)


def steps(made):
    return made.status()["steps"]


def is_done(result):
    return getattr(result, "done", result)


def test_an_actor_never_acts_beyond_the_version_lag_that_is_allowed(learner, start):
    learner.say(10, version=10)
    made = start()
    jobs_in_process.poll_until(lambda: steps(made) > 0, "it acts", made)
    learner.say(10 + MOST_LAG)
    jobs_in_process.poll_until(
        lambda: made.status()["version_lag"] == MOST_LAG, "it has heard of the limit", made
    )
    before = steps(made)
    made.poll()
    assert steps(made) > before
    learner.say(10 + MOST_LAG + 1)
    jobs_in_process.poll_until(
        lambda: made.status()["version_lag"] > MOST_LAG, "it has heard that it lags", made
    )
    before = steps(made)
    for _ in range(5):
        made.poll()
    assert steps(made) == before
    learner.say(10 + MOST_LAG + 1, version=11)
    jobs_in_process.poll_until(lambda: steps(made) > before, "it acts again", made)
    assert made.status()["version"] == 11


@pytest.mark.parametrize("action", [0, 1])
def test_an_actor_that_joins_late_acts_with_the_learners_policy_at_once(
    learner, start, monkeypatch, action
):
    actions, seeds = [], []
    make_environment = experiment_lib.Experiment.make_environment

    def watched(experiment, seed):
        seeds.append(seed)
        env = make_environment(experiment, seed)
        step = env.step

        def noting(taken):
            actions.extend(np.asarray(taken).tolist())
            return step(taken)

        env.step = noting
        return env

    monkeypatch.setattr(experiment_lib.Experiment, "make_environment", watched)
    learner.act_always(action)
    learner.say(500, version=500, steps=RANDOM_STEPS)
    made = start()
    made.poll()
    assert steps(made) >= 64
    assert set(actions) == {action}
    assert seeds == [actor.seed_of(made.job)]


def test_an_actor_that_is_started_again_has_other_seeds():
    registry = memory.MemoryRegistry("seeds")
    places = [("actor", 0, "first"), ("actor", 0, "second"), ("actor", 1, "first")]
    jobs = [job.Job(kind, index, "run", registry, incarnation=life) for kind, index, life in places]
    assert len({actor.seed_of(made) for made in jobs}) == 3
    assert actor.seed_of(jobs[0]) == actor.seed_of(jobs[0])


def test_an_actor_takes_its_share_of_the_steps_and_waits(learner, start):
    learner.say(10, version=10, allowed=640, actors=2)
    learner.answers = False
    made = start()
    jobs_in_process.poll_until(lambda: steps(made) >= 320, "it has taken its share", made)
    taken = steps(made)
    assert taken < 320 + 64  # A turn more at most.
    for _ in range(5):
        made.poll()
    assert steps(made) == taken
    # What the learner has counted is not counted once more.
    learner.environment_step, learner.answers = taken, True
    jobs_in_process.poll_until(
        lambda: learner.reports[-1]["total"] == taken, "it reports again, and all", made
    )
    learner.say(10, steps=taken, allowed=taken + 640, actors=1)
    jobs_in_process.poll_until(lambda: steps(made) >= taken + 640, "it goes on", made)
    assert steps(made) < taken + 640 + 64


def test_a_new_learner_is_told_what_an_earlier_one_has_counted(space, start):
    first = jobs_in_process.Learner(space, epoch=3)
    first.say(10, version=10)
    made = start()
    jobs_in_process.poll_until(lambda: first.reports, "it reports", made)
    jobs_in_process.poll_until(
        lambda: first.reports[-1]["total"] >= 64, "it reports its first turn", made
    )
    first.close()
    second = jobs_in_process.Learner(space, epoch=4)
    try:
        second.say(5, version=5)
        jobs_in_process.poll_until(lambda: second.reports, "it finds the other learner", made)
        assert second.reports[-1]["total"] >= first.reports[-1]["total"]
        jobs_in_process.poll_until(
            lambda: made.status()["version"] == 5, "it acts with the policy of that one", made
        )
    finally:
        second.close()


def test_what_a_learner_of_an_older_epoch_says_is_passed_over(space, start):
    learner = jobs_in_process.Learner(space, epoch=7)
    try:
        learner.say(10, version=10)
        made = start()
        learner.say(99, done=True, epoch=6)
        learner.say(11)
        jobs_in_process.poll_until(
            lambda: made.status()["version_lag"] == 1, "it hears the present one", made
        )
        assert not is_done(made.poll())
    finally:
        learner.close()


def test_an_actor_ends_when_its_learner_says_so(learner, start):
    learner.say(10, version=10)
    made = start()
    learner.say(10, done=True)
    jobs_in_process.poll_until(lambda: is_done(made.poll()), "it ends")


def test_an_actor_that_is_asked_to_end_reports_its_last_turn(learner, start):
    learner.say(10, version=10)
    made = start()
    jobs_in_process.poll_until(lambda: learner.reports, "it reports", made)
    made._acting.run()  # A turn that it had no time to report.
    made.job.stopping.set()
    made.close()
    assert learner.reports[-1]["total"] == made._acting.steps_taken


def test_an_actor_that_comes_after_the_last_step_ends_at_once(learner, start):
    learner.say(10, version=10, steps=STEPS, done=True)
    assert is_done(start().poll())


def test_an_actor_without_a_learner_fails_after_its_patience(learner, start, monkeypatch):
    learner.say(10, version=10)
    made = start()
    learner.close()
    monkeypatch.setattr(made, "_patience_seconds", 1.0)
    with pytest.raises(errors.JobTimeoutError, match="nothing of the learner for 1 s"):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            made.poll()


def test_a_policy_that_does_not_fit_or_is_not_finite_is_never_applied(learner, start):
    learner.say(10, version=10)
    made = start()
    learner.variables[0].assign(np.full(learner.variables[0].shape, np.nan, np.float32))
    with pytest.raises(errors.NotFiniteError, match="version 11 of the policy is not published"):
        learner.say(11, version=11)
    # As an earlier release might send it.
    packed = learner._publisher._packing.pack()
    learner._publisher._packed, learner._publisher.version = packed, 12
    learner.say(12)
    before = steps(made)
    jobs_in_process.poll_until(lambda: steps(made) > before, "it acts on", made)
    assert made.status()["version"] == 10
    learner._publisher._packed, learner._publisher.version = packed[:64], 13
    learner.say(13)
    for _ in range(3):
        made.poll()
    assert made.status()["version"] == 10
