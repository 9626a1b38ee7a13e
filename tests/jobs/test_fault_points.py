"""Whichever job dies at whichever point, training completes and every step is counted once."""

import os
import subprocess
import sys

import pytest

from actor_learner import run_directory
from actor_learner.reporting import jsonl
from actor_learner.support import fault_points
from tests.jobs import job_processes
from tests.launch import processes

pytestmark = pytest.mark.timeout(400)

STEPS, TURN = 4_000, 64
CONFIGURATION = """
import tests.jobs.logged_environment
include 'dqn_cartpole.gin'
Experiment.environment = @LoggedEnvironment
LoggedEnvironment.path = '{steps}'
evaluation/LoggedEnvironment.path = None
Evaluation.environment = @evaluation/LoggedEnvironment
Evaluation.interval = 500
Evaluation.episodes = 1
Evaluation.target_return = None
Experiment.environment_steps = {environment_steps}
Experiment.initial_random_steps = 100
Experiment.collect_steps = {turn}
Experiment.updates_per_step = 0.1
Checkpoints.replay_seconds = 0.5
Learner.checkpoint_interval = 50
Reporting.seconds = 0.2
dqn.fc_layer_params = (4,)
LaneReplay.rows_per_item = 1
"""
# Two of them in every run of the suite; all of them in `make slow`.
OFTEN = (fault_points.REPORT_COUNTED, fault_points.TURN_TAKEN)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in OFTEN else [pytest.mark.slow])
        for point in fault_points.POINTS
    ],
)
def test_every_step_counts_once_whoever_dies_where(tmp_path, point):
    steps, marker = tmp_path / "steps", tmp_path / "marker"
    gin_file = tmp_path / "points.gin"
    gin_file.write_text(CONFIGURATION.format(steps=steps, environment_steps=STEPS, turn=TURN))
    run_dir = run_directory.RunDirectory(tmp_path / "points")
    output = tmp_path / "output"
    with open(output, "w") as file:
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "actor_learner.cli", "up", f"--gin_file={gin_file}"),
                *(f"--run_dir={run_dir}", "--actors=2", "--evaluators=1", "--seed=1"),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(job_processes.ROOT),
                fault_points.VARIABLE: f"{point}@{marker}",
            },
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=360,
        )
    assert ended.returncode == 0, output.read_text()[-4_000:]
    assert marker.exists(), "nobody came to the point"
    assert "signal SIGKILL" in output.read_text()
    rows = [r for r in jsonl.read_rows(run_dir.metrics_jsonl) if "eval_return" not in r]
    counted = rows[-1]["environment_steps"]
    assert counted >= STEPS
    # Of an actor that dies between taking a turn and telling of it, that turn is not counted.
    lost = steps.stat().st_size - counted
    assert 0 < lost <= TURN if point == fault_points.TURN_TAKEN else lost == 0
    for column in ("environment_steps", "train_steps"):
        values = [row[column] for row in rows]
        assert values == sorted(values), column
    processes.wait_until_gone(processes.with_word(str(run_dir)))
