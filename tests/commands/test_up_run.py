"""One real run of `actor-learner up`, with two evaluators and a job of the user's own."""

import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.learning import best_policy_trigger
from actor_learner.naming import files
from actor_learner.parameters import store
from actor_learner.reporting import jsonl
from tests.launch import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 400.0
UNUSED = "sac.gamma = 0.5"
BINDINGS = (
    "Experiment.environment_steps = 2_000",
    "Evaluation.target_return = None",
    "Experiment.initial_random_steps = 200",
    "Experiment.updates_per_step = 0.2",
    "Evaluation.interval = 500",
    "Evaluation.episodes = 3",
    "TableWatcher.interval_seconds = 0.5",
    "dqn.fc_layer_params = (16,)",
    UNUSED,
)

pytestmark = pytest.mark.timeout(500)


def up(gin_file, bindings, *arguments):
    """Runs the command to its end; returns its exit code and what it has said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("ACTOR_LEARNER_REGISTRY", None)
    process = subprocess.run(
        [
            *(sys.executable, "-m", "actor_learner.cli", "up", f"--gin_file={gin_file}"),
            *(f"--gin_param={binding}" for binding in bindings),
            *arguments,
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    return process.returncode, process.stdout + process.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run directory, what the launcher has said, and all jobs' last states."""
    path = tmp_path_factory.mktemp("up") / "mine"
    code, said = up(
        "examples/table_watcher.gin", BINDINGS, f"--run_dir={path}", "--evaluators=2", "--seed=5"
    )
    assert code == 0, said
    run_dir = run_directory.RunDirectory(path)
    with files.FileRegistry(rendezvous.registry_in(run_dir)) as names:
        workers = controller.Controller(names, "mine").workers()
    return run_dir, said, {status.name: status for status in workers}


def test_a_job_of_the_users_own_lives_and_ends_with_the_run(run):
    run_dir, said, workers = run
    assert workers["watcher-0"].state == states.COMPLETED
    rows = jsonl.read_rows(run_dir.log("watcher").parent / "tables.jsonl")
    # The run's id is part of the table's name.
    (table,) = (name for name in rows[-1] if name.startswith("experience@"))
    assert rows[-1][table]["inserts"] > 0
    assert "watcher-0 running" in said
    assert processes.with_word(str(run_dir)) == []


def test_its_jobs_were_forked_from_one_process_that_had_the_imports(run):
    run_dir, _, _ = run
    assert "each job now imports it by itself" not in run_dir.log("up").read_text()


def test_every_evaluator_rates_the_final_version_and_the_best_of_all_is_kept(run):
    run_dir, _, workers = run
    rated = [row for row in jsonl.read_rows(run_dir.metrics_jsonl) if "eval_return" in row]
    final = workers["learner-0"].steps
    assert len([row for row in rated if row["train_steps"] == final]) == 2
    assert workers["evaluator-0"].details["evaluations"] >= 1
    assert workers["evaluator-1"].details["evaluations"] >= 1
    score = best_policy_trigger.read_best_score(str(run_dir.best))
    # Chosen by one evaluation, shown with the score of another.
    assert score["chosen_by"]["mean"] == max(row["eval_return"] for row in rated)
    assert score["episodes"] == 3 and rated[-1]["best_return"] == score["mean"]
    assert (run_dir.best / "policy" / "saved_model.pb").exists()
    stored = store.ParameterStore(run_dir.path / store.DIRECTORY).get("policy", "best")
    shown = (stored.version, stored.metadata["mean_return"])
    assert shown == (score["train_step"], score["mean"])


def test_a_binding_that_no_job_uses_is_named_and_no_other(run):
    run_dir, said, _ = run
    warned = re.findall(r"warning: .*?: (\S+) is never used: .* \(in any job\)", said)
    assert warned == ["sac.gamma"], said
    assert "sac.gamma is never used" in run_dir.log("up").read_text()


def test_a_run_whose_final_policy_cannot_be_evaluated_fails_with_words(tmp_path):
    gin_file = tmp_path / "not_finite.gin"
    gin_file.write_text(
        """
import tests.evaluation_environments
Experiment.agent = @dqn
Experiment.environment = @tests.noting
Evaluation.environment = @tests.not_finite
"""
    )
    small = [binding for binding in BINDINGS if not binding.startswith(("TableWatcher", "sac"))]
    path = tmp_path / "run"
    code, said = up(gin_file, small, f"--run_dir={path}", "--seed=5")
    assert code == 1, said
    assert "cannot be evaluated: its mean return over 3 episodes is nan" in said
    assert "restarts" not in said, "starting the learner again would not cure it"
    run_dir = run_directory.RunDirectory(path)
    assert not run_dir.best.exists()
    assert list((path / "train" / "checkpoints").glob("ckpt-*.index"))
    rated = [row for row in jsonl.read_rows(run_dir.metrics_jsonl) if "eval_return" in row]
    assert rated and all(math.isnan(row["eval_return"]) for row in rated)
