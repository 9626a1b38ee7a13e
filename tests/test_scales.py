"""The table of action scales, from runs that are made up, and the wrapper that rescales actions."""

import json

import gymnasium
import numpy as np
import pytest

from benchmarks import rescaled_action, scales


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """What would have been run. Runs reach -150 after 2,000 steps, those at ±100 but -900."""
    made = []
    monkeypatch.setattr(scales, "RUNS", tmp_path)

    def run(command, timeout_seconds):
        made.append(command)
        directory = next(tmp_path / a.split("/")[-1] for a in command if a.startswith("--run_dir"))
        (directory / "best").mkdir(parents=True)
        (directory / "best" / "score.json").write_text("{}")
        best = -900.0 if "±100" in directory.name else -150.0
        rows = [
            {"environment_steps": 1_000, "train_steps": 10, "eval_return": -1_200.0},
            {"environment_steps": 2_000, "train_steps": 20, "eval_return": best},
        ]
        (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    monkeypatch.setattr(scales.processes, "run", run)
    return made


def test_the_table_tells_who_reached_the_target_and_when(commands, capsys):
    arguments = ["--problem=pendulum", "--only=sac,bc", "--scales=±0.4 float64;±100"]
    assert scales.main(arguments) == 1
    table = capsys.readouterr().out
    assert "| sac | -180 | -150 (2,000) | -900 |" in table
    assert "| bc | -200 | -150 (20) | -900 |" in table
    # For each scale SAC, its recording, and the clone of that; nothing is done twice.
    assert len(commands) == 6
    scales.main(arguments)
    assert len(commands) == 6
    assert any("'low': -0.4, 'high': 0.4, 'dtype': 'float64'" in a for a in commands[0])
    clone = commands[2]
    assert any(a.startswith("--gin_param=RecordedReplay.path") and "recorded" in a for a in clone)
    assert scales.main(["--problem=pendulum", "--only=sac", "--scales=±0.4 float64"]) == 0


def test_unknown_agents_and_scales_are_refused(capsys):
    for arguments in (["--only=dqn"], ["--scales=±7"]):
        with pytest.raises(SystemExit):
            scales.main(arguments)
    assert "there is no dqn" in capsys.readouterr().err


def test_the_wrapper_rescales_and_refuses_what_is_not_an_action():
    env = rescaled_action.RescaledAction(gymnasium.make("Pendulum-v1"), 0.0, 0.1, "float64")
    assert env.action_space == gymnasium.spaces.Box(0.0, 0.1, (1,), np.float64)
    for ours, theirs in ((0.0, -2.0), (0.05, 0.0), (0.1, 2.0)):
        inside = env.action(np.array([ours]))
        assert inside.dtype == np.float32
        np.testing.assert_allclose(inside, [theirs], atol=1e-6)
    for wrong in (np.array([np.nextafter(0.1, 1.0)]), np.array(0.05), np.array([0.05, 0.05])):
        with pytest.raises(ValueError, match="not an action"):
            env.action(wrong)
