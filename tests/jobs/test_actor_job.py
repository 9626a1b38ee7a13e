"""When an actor acts, with which policy, and when it ends, by what its learner says."""

import uuid

import numpy as np
import pytest

from actor_learner import experiment as experiment_lib
from actor_learner.jobs import actor, job, replay
from actor_learner.naming import memory
from tests.jobs import jobs_in_process

pytestmark = pytest.mark.timeout(400)

STEPS, RANDOM_STEPS, MOST_LAG = 100_000, 1_000, 5
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    f"Experiment.initial_random_steps = {RANDOM_STEPS}",
    f"Experiment.max_version_lag = {MOST_LAG}",
    "Experiment.when_lagging = 'wait'",
    "Experiment.collect_steps = 64",
    "GymnasiumEnvironment.num_envs = 4",
    "dqn.fc_layer_params = (4,)",
    "dqn.epsilon_start = 0.0",
    "dqn.epsilon_end = 0.0",
)


@pytest.fixture(scope="module")
def space():
    with jobs_in_process.configured("dqn_cartpole", *BINDINGS):
        name = uuid.uuid4().hex
        serving = jobs_in_process.configure(replay.ReplayJob(), "replay", name)
        yield name
        serving.close()


@pytest.fixture
def learner(space):
    asking = job.Job("learner", 0, jobs_in_process.RUN, memory.MemoryRegistry(space))
    made = jobs_in_process.Learner(asking, None)
    yield made
    made.close()


@pytest.fixture
def start(space):
    """Starts an actor."""
    started = []

    def make():
        started.append(jobs_in_process.configure(actor.ActorJob(), "actor", space))
        return started[-1]

    yield make
    for made in started:
        made.close()


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


def test_an_actor_ends_when_its_learner_says_so(learner, start):
    learner.say(10, version=10)
    made = start()
    learner.say(10, done=True)
    jobs_in_process.poll_until(lambda: is_done(made.poll()), "it ends")


def test_an_actor_that_comes_after_the_last_step_ends_at_once(learner, start):
    learner.say(10, version=10, steps=STEPS, done=True)
    assert is_done(start().poll())


def test_an_actor_of_a_run_that_is_extended_waits_for_the_learner(learner, start):
    # Those steps were all there were to take, before.
    learner.say(10, version=10, steps=STEPS - 1_000, done=True)
    made = start()
    for _ in range(5):
        assert not is_done(made.poll())
    assert steps(made) == 0
    learner.say(10, version=10, steps=STEPS - 1_000)
    jobs_in_process.poll_until(lambda: steps(made) > 0, "it acts", made)


def test_an_actor_that_finds_a_living_learner_done_for_its_return_ends(learner, start):
    learner.say(10, version=10, steps=500, done=True)
    made = start()
    assert not is_done(made.poll())
    learner.say(10, version=10, steps=500, done=True)
    jobs_in_process.poll_until(lambda: is_done(made.poll()), "it ends")


def test_an_actor_that_finds_training_done_and_no_learner_ends(learner, start, monkeypatch):
    learner.say(10, version=10, steps=500, done=True)
    made = start()
    assert not is_done(made.poll())
    monkeypatch.setattr(actor, "_LEARNER_SECONDS", 0.0)
    assert is_done(made.poll())
