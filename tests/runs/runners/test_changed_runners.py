"""A run goes on in whatever way it is started: in one process, as jobs, and back."""

import uuid

import gin
import pytest

from actor_learner import config, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.jobs.workers import actor, learner, replay
from actor_learner.runs import one_process
from actor_learner.support import errors
from tests.jobs import jobs_in_process
from tests.runs import test_one_process

BINDINGS = (
    "Experiment.initial_random_steps = 100",
    "Experiment.collect_steps = 32",
    "Experiment.updates_per_step = 0.25",
    "Checkpoints.save_replay = True",
    "Reporting.seconds = 0.001",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 1",
    "Evaluation.target_return = None",
    "GymnasiumEnvironment.num_envs = 4",
    "LaneReplay.rows_per_item = 1",
    "dqn.fc_layer_params = (4,)",
)


@pytest.fixture(autouse=True)
def clear():
    yield
    gin.clear_config()


@pytest.fixture
def run(tmp_path):
    made = run_directory.RunDirectory(tmp_path / jobs_in_process.RUN)
    made.path.mkdir()
    return made


def train_alone(run, environment_steps):
    """Trains in one process; returns the counters it began and ended with, and its rows."""
    steps = f"Experiment.environment_steps = {environment_steps}"
    config.load(config.ConfigSource(("dqn_cartpole",), (*BINDINGS, steps)))
    rows = []
    with one_process.OneProcess(
        experiment_lib.Experiment(), run, seed=1, on_row=rows.append
    ) as training:
        began = training.environment_step, training.train_step
        assert training.run() == one_process.COMPLETED
        return began, (training.environment_step, training.train_step), rows


def train_as_jobs(run, more_steps):
    """Trains as jobs; returns the counters and items they began with, and those at the end."""
    space = uuid.uuid4().hex
    bindings = (*BINDINGS, "Experiment.environment_steps = 1_000_000")
    with jobs_in_process.configured("dqn_cartpole", *bindings):
        serving = jobs_in_process.configure(replay.ReplayJob(), "replay", space, run_dir=run)
        trained = jobs_in_process.configure(learner.LearnerJob(), "learner", space, run_dir=run)

        def now():
            status = trained.status()
            items = next(iter(serving._server.info().tables.values())).size
            return status["environment_steps"], status["steps"], items

        began = now()
        trained.poll()  # It tells the news that an actor waits for.
        acting = jobs_in_process.configure(actor.ActorJob(), "actor", space)
        try:
            until = began[0] + more_steps
            jobs_in_process.poll_until(
                lambda: trained.status()["environment_steps"] >= until, "done", acting, trained
            )
            trained.save()
            ended = now()
            serving.save()
            return began, ended
        finally:
            acting.close()
            trained.close()
            serving.close()
            for worker in (acting, trained, serving):
                jobs_in_process.end(worker.job)


def test_steps_policy_and_replay_go_from_one_process_to_jobs_and_back(run):
    _, alone, rows = train_alone(run, 400)
    assert alone[1] > 50
    items = rows[-1]["replay_size"]
    began, ended = train_as_jobs(run, 400)
    assert began[:2] == alone
    assert 0 < began[2] <= items + 4 and began[2] > 80
    assert ended[0] >= alone[0] + 400 and ended[1] > began[1] and ended[2] > began[2] + 80
    began, again, rows = train_alone(run, ended[0] + 100)
    assert began == ended[:2]
    assert again[0] >= ended[0] + 100 and again[1] > ended[1]
    # Nothing had to be collected before learning went on.
    assert rows[0]["train_steps"] > ended[1]


def test_a_process_that_is_superseded_saves_nothing_more(run):
    overtaken = test_one_process.make_experiment(environment_steps=100_000)
    checkpoints = run.path / "train" / "checkpoints"
    saved = []

    def overtake(row):
        if row["train_steps"] > 50 and not saved:
            successor = one_process.OneProcess(test_one_process.make_experiment(), run, seed=1)
            assert successor.run() == one_process.COMPLETED
            successor.close()
            saved.extend(sorted(path.name for path in checkpoints.iterdir()))
            training._learning.save()

    with one_process.OneProcess(overtaken, run, seed=1, on_row=overtake) as training:
        with pytest.raises(errors.SupersededError, match=r"\(epoch 1; this one is 0\)"):
            training.run()
    assert saved and sorted(path.name for path in checkpoints.iterdir()) == saved
