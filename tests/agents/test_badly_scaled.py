"""Observations in any units are learned from once they are normalised."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_dqn_learns_cartpole_whatever_its_units(factor, tmp_path):
    scale = f"('tests.environments.sample_environments:ScaleObservation', {{'factor': {factor}}})"
    bindings = (f"GymnasiumEnvironment.wrappers = [{scale}]", "dqn.normalize_observations = True")
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "actor_learner.cli",
            "train",
            "--gin_file=dqn_cartpole.gin",
            f"--run_dir={tmp_path / 'run'}",
            "--seed=1",
            *(f"--gin_param={binding}" for binding in bindings),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3_000,
    )
    assert process.returncode == 0, process.stderr
    score = json.loads((tmp_path / "run" / "best" / "score.json").read_text())
    assert score["mean"] >= 400, score
