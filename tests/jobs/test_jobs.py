"""One run as separate jobs: three machines without a disk in common, told to end, and resumed.

All tests look at what one story has left behind, because starting the jobs is what takes the time.
The machines are directories and addresses of the loopback interface.
"""

import contextlib
import pathlib
import signal
import tempfile
import types

import pytest
import reverb

from actor_learner import config, run_directory
from actor_learner.jobs import job, states
from actor_learner.jobs.exchange import replay_connection
from actor_learner.learning import best_policy_trigger
from actor_learner.parameters import store
from actor_learner.replay.server import checkpoints
from actor_learner.reporting import jsonl
from examples import own_table
from tests.jobs import job_processes
from tests.naming import conftest as servers

pytestmark = pytest.mark.timeout(900)

GIN_FILE = job_processes.ROOT / "examples" / "own_table.gin"
BINDINGS = (
    "Evaluation.target_return = None",
    "Experiment.initial_random_steps = 200",
    "Experiment.collect_steps = 64",
    "Experiment.updates_per_step = 0.1",
    "Evaluation.interval = 200",
    "Evaluation.episodes = 2",
    "Reporting.seconds = 0.2",
    "GymnasiumEnvironment.num_envs = 4",
    "LoadWriter.interval_seconds = 0.2",
    "dqn.fc_layer_params = (16,)",
)
FOREVER, A_LITTLE = 10**9, 300
LOCAL = "--host=localhost"  # The registry is one that other machines could reach.


def common(environment_steps):
    bindings = (*BINDINGS, f"Experiment.environment_steps = {environment_steps}")
    return [f"--gin_file={GIN_FILE}", *(f"--gin_param={binding}" for binding in bindings)]


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """What there is to tell: exit codes, outputs and states, by moment and job."""
    directory = tmp_path_factory.mktemp("machines")
    with contextlib.ExitStack() as closing:
        # A short path: those of sockets are limited to a hundred characters or so.
        redis = closing.enter_context(tempfile.TemporaryDirectory(prefix="redis-"))
        port = servers.free_port()
        closing.enter_context(servers.redis_server(redis, port))
        url = f"redis://127.0.0.1:{port}/0"
        yield _Story(directory, url, closing).tell()


class _Story:
    def __init__(self, directory, url, closing):
        self._closing = closing
        self._alpha, self._beta, self._gamma, self._delta = (
            job_processes.Machine(directory / name, url)
            for name in ("alpha", "beta", "gamma", "delta")
        )
        self._watch = job_processes.Watch(url, "mine")
        closing.callback(self._watch.names.close)
        self._told = types.SimpleNamespace(
            run_dir=run_directory.RunDirectory(self._beta.directory / "runs" / "mine"),
            replay_dir=self._alpha.directory / "runs" / "mine" / "replay",
            empty=[self._gamma.directory, self._delta.directory],
        )

    def tell(self):
        told, watch = self._told, self._watch
        host = ("--host=127.0.0.2", "--run=runs/mine")
        self.replay = self._start(self._alpha, "replay", *common(FOREVER), *host)
        first = self._start_others(FOREVER)
        notes = self._start(self._gamma, "custom", "load", *common(FOREVER), "--run=mine", LOCAL)
        everybody = [self.replay, *first.values(), notes]
        watch.wait(lambda: (self._steps() or 0) >= 100, "the learner has trained", everybody)
        watch.wait(lambda: watch.details("evaluator", "evaluations"), "it is rated", everybody)
        watch.wait(lambda: (s := watch.status("load")) and s.steps, "a note is taken", everybody)
        connection = replay_connection.ReplayConnection(job.Job("test", 0, "mine", watch.names))
        told.address = connection.address
        told.tables = {*connection.contract["tables"], "load"}
        connection.close()
        told.note = own_table.latest(reverb.Client(told.address))
        watch.wait(lambda: "version_lag_seconds" in self._actor(), "its lag is known", everybody)
        told.lag = self._actor()["version_lag_seconds"]

        rival = self._start(self._delta, "learner", *common(FOREVER), "--run=elsewhere/mine", LOCAL)
        told.rival = (rival.exit_code(), rival.said, first["learner"].pid)

        for process in (*first.values(), notes):
            process.process.send_signal(signal.SIGTERM)
        told.terminated = {name: process.exit_code() for name, process in first.items()}
        told.terminated["load"] = notes.exit_code()
        told.states = {s.kind: s.state for s in watch.controller.workers() if s.kind != "replay"}
        told.learner_said = first["learner"].said
        told.last_steps = watch.status("learner").steps
        told.saved = _newest_checkpoint(told.run_dir)
        told.rows_before = jsonl.read_rows(told.run_dir.metrics_jsonl)

        told.limit = watch.details("learner", "environment_steps") + A_LITTLE
        # The run goes on from its checkpoint, so that it does not matter what it began from.
        second = self._start_others(told.limit, "--warm_start=nowhere")
        told.completed = {name: process.exit_code() for name, process in second.items()}
        told.learner = watch.status("learner")
        told.evaluator = watch.status("evaluator")
        self.replay.process.send_signal(signal.SIGTERM)
        told.terminated["replay"] = self.replay.exit_code()
        told.rows = jsonl.read_rows(told.run_dir.metrics_jsonl)
        return told

    def _start(self, machine, *command):
        process = machine.start(*command)
        self._closing.callback(process.kill)
        return process

    def _start_others(self, environment_steps, *of_learner):
        flags = [*common(environment_steps), LOCAL]
        return {
            "learner": self._start(self._beta, "learner", *flags, "--run=runs/mine", *of_learner),
            "actor": self._start(self._gamma, "actor", *flags, "--run=mine"),
            "evaluator": self._start(self._delta, "eval", *flags, "--run=mine"),
        }

    def _actor(self):
        status = self._watch.status("actor")
        return {} if status is None else status.details

    def _steps(self):
        status = self._watch.status("learner")
        return None if status is None else status.steps


def _newest_checkpoint(run_dir):
    files = (run_dir.tensorboard / "checkpoints").glob("ckpt-*.index")
    return max(int(path.stem.removeprefix("ckpt-")) for path in files)


def test_jobs_on_machines_without_a_common_directory_train_to_the_end(story):
    assert story.address.startswith("127.0.0.2:")
    assert story.completed == {"learner": 0, "actor": 0, "evaluator": 0}
    assert story.learner.details["environment_steps"] >= story.limit
    for directory in story.empty:
        assert list(directory.iterdir()) == []


def test_a_job_that_is_told_to_end_saves_and_says_so_by_its_exit_code(story):
    assert story.terminated == dict.fromkeys(
        ("learner", "actor", "evaluator", "load", "replay"), 143
    )
    assert story.states == dict.fromkeys(
        ("learner", "actor", "evaluator", "load"), states.COMPLETED
    )
    assert "SIGTERM: saving" in story.learner_said
    assert story.saved == story.last_steps > 0


def test_the_replay_server_that_is_told_to_end_saves_all_tables(story):
    newest = checkpoints.CheckpointDirectory(story.replay_dir, 2).newest_first()[0]
    counts = checkpoints.count_items(newest)
    assert all(counts[table] > 0 for table in story.tables)


def test_a_resumed_run_goes_on_where_it_was(story):
    before, after = story.rows_before, story.rows[len(story.rows_before) :]
    assert story.rows[: len(before)] == before
    progress = [row for row in story.rows if "eval_return" not in row]
    for column in ("environment_steps", "train_steps", "episodes", "seconds"):
        values = [row[column] for row in progress]
        assert values == sorted(values), column
    assert min(row["train_steps"] for row in after if "eval_return" not in row) >= story.saved


def test_the_final_version_is_evaluated(story):
    assert story.evaluator.state == states.COMPLETED
    assert story.evaluator.version == story.learner.version == story.learner.steps
    rated = [row["train_steps"] for row in story.rows if "eval_return" in row]
    assert len(rated) > 1 and rated[-1] == story.learner.steps


def test_a_second_learner_of_the_run_refuses_to_start(story):
    code, said, first_pid = story.rival
    assert code == 1
    assert f"learner-0 of run mine is already running, as process {first_pid}" in said


def test_a_table_of_the_users_own_carries_a_payload_of_its_own(story):
    assert story.note["load"].shape == (3,) and story.note["time"] > 1.6e9


def test_how_long_an_actor_is_behind_is_known(story):
    assert 0.0 <= story.lag < 60.0
    assert 0.0 <= story.evaluator.details["version_lag_seconds"] < 60.0
    lags = [row["version_lag_seconds"] for row in story.rows if "version_lag_seconds" in row]
    assert lags and all(0.0 <= lag < 60.0 for lag in lags)
    with open(story.run_dir.metrics_csv) as file:
        assert "version_lag_seconds" in file.readline()


def test_a_run_started_by_hand_can_be_evaluated_and_resumed_like_any_other(story):
    run = run_directory.RunDirectory.existing(str(story.run_dir))
    assert run.read_description()["name"] == "mine"
    config.check(config.ConfigSource((str(run.config),)))
    assert "dqn.fc_layer_params = (16,)" in run.operative_config.read_text()
    assert (run.policies / "greedy_policy" / "saved_model.pb").exists()
    assert pathlib.Path(run.curve).exists()
    versions = store.ParameterStore(run.path / store.DIRECTORY).list("policy")
    assert story.learner.steps in {stored.version for stored in versions}


def test_the_best_policy_of_an_evaluator_elsewhere_is_kept_by_the_learner(story):
    parameters = store.ParameterStore(story.run_dir.path / store.DIRECTORY).get("policy", "best")
    # A version may be rated twice: by the evaluator, and by its successor.
    rated = [(row["train_steps"], row["eval_return"]) for row in story.rows if "eval_return" in row]
    best = parameters.metadata["choosing_mean_return"]
    assert (parameters.version, best) in rated and best == max(mean for _, mean in rated)
    assert sorted(parameters.values["QNetwork/dense/kernel"].shape) == [2, 16]
    score = best_policy_trigger.read_best_score(str(story.run_dir.best))
    assert (score["train_step"], score["mean"]) == (
        parameters.version,
        parameters.metadata["mean_return"],
    )
    assert (story.run_dir.best / "policy" / "saved_model.pb").exists()
