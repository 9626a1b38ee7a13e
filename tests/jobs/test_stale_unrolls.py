"""On-policy jobs whose actors are behind: the learner drops what is too old, and goes on."""

import subprocess
import sys

import pytest

from actor_learner import run_directory
from actor_learner.reporting import jsonl
from tests.jobs import job_processes

STEPS, MOST_LAG = 24_000, 1
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    f"Experiment.max_version_lag = {MOST_LAG}",
    "Experiment.when_lagging = 'drop'",
    "Experiment.target_return = None",
    "Experiment.evaluation_interval = 0",
    "Experiment.evaluation_episodes = 2",
    "Experiment.report_seconds = 0.1",
    "Experiment.publish_seconds = 0.2",
    "GymnasiumEnvironment.num_envs = 8",
    "impala.fc_layer_params = (8,)",
)


@pytest.mark.timeout(300)
def test_unrolls_that_are_too_old_are_dropped_and_training_completes(tmp_path):
    run_dir = run_directory.RunDirectory(tmp_path / "run")
    command = [sys.executable, "-m", "actor_learner.cli", "up", "--gin_file=impala_cartpole"]
    command += [f"--gin_param={binding}" for binding in BINDINGS]
    process = subprocess.run(
        [*command, f"--run_dir={run_dir}", "--actors=2", "--evaluators=0"],
        cwd=job_processes.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150.0,
    )
    assert process.returncode == 0, process.stdout[-4_000:]
    rows = jsonl.read_rows(run_dir.metrics_jsonl)
    lags = [row["version_lag"] for row in rows if "version_lag" in row]
    assert lags and max(lags) <= MOST_LAG
    last = rows[-1]
    assert last["environment_steps"] >= STEPS
    # Every unroll of 16 steps of 8 lanes was either learned from, dropped, or left at the end.
    assert last["dropped_items"] > 0
    used = last["train_steps"] + last["dropped_items"]
    assert 0.9 * STEPS <= used * 16 * 8 <= last["environment_steps"] * 1.1
