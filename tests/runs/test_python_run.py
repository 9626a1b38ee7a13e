"""Training from Python: one call gives the run that the command gives."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import actor_learner
from actor_learner.agents import dqn as dqn_module
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.support import errors
from tests import counting_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FailingEnv(counting_environment.CountingEnv):
    def step(self, action):
        if len(self.actions) == 20:
            raise ValueError("the twentieth step")
        return super().step(action)


def make_experiment(**changes):
    given = dict(
        environment=functools.partial(
            gymnasium_environment.GymnasiumEnvironment, "CartPole-v1", num_envs=4
        ),
        agent=functools.partial(actor_learner.dqn, fc_layer_params=(8,)),
        environment_steps=600,
        initial_random_steps=100,
        updates_per_step=0.2,
        evaluation=actor_learner.Evaluation(interval=200, episodes=3),
        reporting=actor_learner.Reporting(seconds=0.01),
    )
    return actor_learner.Experiment(**{**given, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("python") / "runs" / "x"
    return make_experiment().train(directory, seed=1)


def test_a_run_from_python_leaves_what_the_command_leaves(finished):
    for path in (
        *("run.json", "operative_config.gin", "metrics.jsonl", "metrics.csv", "curve.png"),
        *("best/policy/saved_model.pb", "policies/greedy_policy/saved_model.pb"),
        *("jobs/train-0/log", "train/checkpoints/checkpoint"),
    ):
        assert (finished.run_dir / path).exists(), path
    assert json.loads((finished.run_dir / "run.json").read_text())["seed"] == 1
    assert list((finished.run_dir / "train").glob("events.out.tfevents.*"))


def test_the_result_has_the_best_score_the_curve_and_a_policy(finished):
    assert finished.status == "completed" and finished.reason is None
    score = json.loads((finished.run_dir / "best" / "score.json").read_text())
    assert finished.best.mean == pytest.approx(score["mean"])
    steps = finished.curve.environment_steps
    assert len(steps) >= 3 and np.all(np.diff(steps) > 0) and steps[-1] >= 600
    assert finished.curve.mean.shape == finished.curve.std.shape == steps.shape
    assert finished.policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert finished.rows[-1]["environment_steps"] >= 600
    again = actor_learner.Result(finished.run_dir)
    assert again.best == finished.best and again.status is None


def test_the_run_is_resumed_and_otherwise_refused(finished, capsys):
    with pytest.raises(errors.ConfigError, match=r"resume it with train\(.*resume=True\)"):
        make_experiment().train(finished.run_dir)
    longer = make_experiment(environment_steps=800).train(finished.run_dir, resume=True)
    assert longer.rows[-1]["environment_steps"] >= 800
    assert longer.rows[: len(finished.rows)] == finished.rows
    shown = capsys.readouterr().out
    assert "the replay starts empty" in shown and "Checkpoints.save_replay = True" in shown
    with pytest.raises(errors.ConfigError, match="leave out warm_start"):
        make_experiment().train(finished.run_dir, resume=True, warm_start=finished.run_dir)


def test_another_run_begins_with_its_policy_and_calls_triggers(finished, tmp_path):
    seen = []

    def trigger(train_step):
        seen.append((int(train_step), type(actor_learner.parts.agent()).__name__))
        raise actor_learner.StopTraining("seen")

    result = make_experiment().train(
        tmp_path / "y", seed=2, warm_start=finished.run_dir, triggers=[trigger]
    )
    assert result.status == "stopped" and result.reason == "seen"
    assert len(seen) == 1 and seen[0][1] == "DdqnAgent"
    assert "warm" in (tmp_path / "y/jobs/train-0/log").read_text().lower()


def test_progress_and_the_last_lines_go_to_whatever_stdout_is_and_no_noise(tmp_path, capsys):
    """As in a notebook, whose streams are not those of the process."""
    make_experiment().train(tmp_path / "x", seed=1)
    shown = capsys.readouterr().out
    assert "run directory: " in shown and "100% of 600" in shown and "Finished at" in shown
    assert f"actor_learner.load_policy('{tmp_path / 'x'}')" in shown
    assert "reverb/cc" not in shown
    print("again")
    assert capsys.readouterr().out == "again\n"


def test_an_interrupt_saves_and_is_passed_on(tmp_path):
    experiment = make_experiment(environment_steps=1_000_000)

    def interrupt():
        path = tmp_path / "x" / "metrics.jsonl"
        while not path.exists() or not path.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        experiment.train(tmp_path / "x", seed=1)
    thread.join()
    assert signal.getsignal(signal.SIGINT) is handler
    assert actor_learner.RunDirectory(tmp_path / "x").has_checkpoints
    rows = actor_learner.Result(tmp_path / "x").rows
    steps = rows[-1]["environment_steps"]
    resumed = make_experiment(environment_steps=steps + 200).train(tmp_path / "x", resume=True)
    assert resumed.rows[-1]["environment_steps"] >= steps + 200


def test_what_the_users_environment_raises_reaches_them_and_is_shown_once(tmp_path, capsys):
    broken = functools.partial(
        gymnasium_environment.GymnasiumEnvironment, FailingEnv, 2, vectorization="sync"
    )
    with pytest.raises(errors.EnvironmentError, match="the twentieth step"):
        make_experiment(environment=broken).train(tmp_path / "x")
    shown = capsys.readouterr().out
    assert shown.count("the twentieth step") == 1
    assert "test_python_run.py:" in shown and "Traceback" not in shown
    assert "Traceback" in (tmp_path / "x/jobs/train-0/log").read_text()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"environment": "CartPole-v1"}, "'CartPole-v1', but takes what makes environments.*write"),
        ({"agent": dqn_module}, "is the module actor_learner.agents.dqn: its function is"),
        (
            {"agent": functools.partial(actor_learner.dqn, learning_rat=1e-3)},
            "dqn has no parameter 'learning_rat': did you mean 'learning_rate'",
        ),
        (
            {
                "environment": functools.partial(
                    gymnasium_environment.GymnasiumEnvironment, "CartPole-v1", num_env=4
                )
            },
            "has no parameter 'num_env': did you mean 'num_envs'",
        ),
        ({"replay": actor_learner.LaneReplay}, r"the class LaneReplay: write LaneReplay\(\)"),
        ({"evaluation": 500}, "Experiment.evaluation is 500, but takes a Evaluation"),
        ({"environment_steps": "600"}, "Experiment.environment_steps is '600', but takes a number"),
    ],
)
def test_a_part_in_the_wrong_form_is_refused_with_the_right_one(changes, message):
    with pytest.raises(errors.ConfigError, match=message):
        make_experiment(**changes)


def test_a_refused_run_leaves_no_directory(tmp_path):
    with pytest.raises(errors.ActorLearnerError, match="NoSuchEnv"):
        make_experiment(
            environment=functools.partial(
                gymnasium_environment.GymnasiumEnvironment, "NoSuchEnv-v0"
            )
        ).train(tmp_path / "runs" / "x")
    assert list(tmp_path.iterdir()) == []


def test_importing_and_training_in_a_program_keeps_tensorflows_chatter_from_the_terminal(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import functools\n"
        "from actor_learner import Evaluation, Experiment, GymnasiumEnvironment, dqn\n"
        "experiment = Experiment(\n"
        "    environment=functools.partial(GymnasiumEnvironment, 'CartPole-v1', num_envs=4),\n"
        "    agent=functools.partial(dqn, fc_layer_params=(8,)),\n"
        "    environment_steps=300, initial_random_steps=100, updates_per_step=0.1,\n"
        "    evaluation=Evaluation(interval=0, episodes=2))\n"
        "print('best', experiment.train('x', seed=1).best.mean)\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("best ") and len(done.stdout.splitlines()) == 1
    for noise in ("oneDNN", "cuda", "TF-TRT", "Gym has been", "reverb/cc", "WARNING"):
        assert noise not in done.stderr
    assert "Finished at" in done.stderr
    assert "reverb/cc" in (tmp_path / "x/jobs/train-0/log").read_text()
