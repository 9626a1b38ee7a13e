"""The command line as a user meets it: processes, exit codes, files and what is printed."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import imageio.v3 as imageio
import pytest

from tests import forked

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = (
    "Experiment.environment_steps = 1_500",
    "Experiment.initial_random_steps = 500",
    "Evaluation.interval = 500",
    "Evaluation.episodes = 4",
    "Reporting.seconds = 0.1",
    "dqn.fc_layer_params = (16,)",
)
NOISE = ("reverb/cc", "Gym has been unmaintained", "TF-TRT", "cuda", "oneDNN", "WARNING")


def command(*arguments, bindings=SMALL):
    flags = [f"--gin_param={binding}" for binding in bindings]
    return [sys.executable, "-m", "actor_learner.cli", *map(str, arguments), *flags]


def run(*arguments, bindings=(), cwd=ROOT):
    """Runs a command whose imports are not what is tested."""
    _, _, module, *rest = command(*arguments, bindings=bindings)
    return forked.run(module, *rest, directory=cwd, timeout=200)


def run_by_itself(*arguments, bindings=(), cwd=ROOT):
    """Runs a command as users do, with all that libraries say when they are imported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(*arguments, bindings=bindings),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=200,
    )


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli") / "a run"
    process = run_by_itself(
        "train", "--gin_file=dqn_cartpole.gin", f"--run_dir={directory}", "--seed=3",
        bindings=SMALL, cwd=directory.parent,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return directory, process


def rows_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_everything_behind_in_its_directory(finished_run):
    directory, _ = finished_run
    for path in (
        "operative_config.gin",
        "config.gin",
        "run.json",
        "metrics.jsonl",
        "metrics.csv",
        "curve.png",
        "best/policy/saved_model.pb",
        "best/score.json",
        "policies/policy/saved_model.pb",
        "policies/collect_policy/policy_specs.pbtxt",
        "policies/greedy_policy/saved_model.pb",
        "jobs/train-0/log",
    ):
        assert (directory / path).exists(), path
    assert list((directory / "train" / "checkpoints").glob("ckpt-*.index"))
    assert list((directory / "train").glob("events.out.tfevents.*"))
    assert list((directory / "policies" / "checkpoints").glob("policy_checkpoint_*"))
    description = json.loads((directory / "run.json").read_text())
    assert description["seed"] == 3
    assert description["versions"]["tf-agents"] == "0.19.0"
    operative = (directory / "operative_config.gin").read_text()
    assert "dqn.fc_layer_params = (16,)" in operative
    assert "Learner.max_checkpoints_to_keep = 3" in operative  # A default, spelt out.
    assert sorted(p.name for p in directory.parent.iterdir()) == ["a run"]


def test_the_terminal_shows_progress_and_what_to_do_next_and_no_noise(finished_run):
    directory, process = finished_run
    shown = process.stdout + process.stderr
    for noise in NOISE:
        assert noise not in shown
    assert f"run directory: {directory}" in shown
    assert "Best return" in shown
    assert f"actor-learner eval '{directory}'" in shown
    assert f"actor-learner train --resume '{directory}'" in shown
    assert f"tensorboard --logdir '{directory}'" in shown
    assert "reverb/cc" in (directory / "jobs" / "train-0" / "log").read_text()


def test_metrics_grow_monotonically_and_end_at_the_configured_steps(finished_run):
    rows = rows_of(finished_run[0])
    steps = [row["environment_steps"] for row in rows]
    assert steps == sorted(steps)
    assert 1_500 <= steps[-1] < 1_500 + 256
    assert any("eval_return" in row for row in rows)


def test_eval_rates_the_best_policy_and_writes_a_playable_video(finished_run, tmp_path):
    directory, _ = finished_run
    video = tmp_path / "episode.mp4"
    process = run("eval", directory, "--episodes=2", f"--video={video}")
    assert process.returncode == 0, process.stderr
    assert "over 2 episodes" in process.stdout and "±" in process.stdout
    frames = imageio.imread(video)
    assert frames.shape[0] > 10 and frames.shape[1:] == (400, 600, 3)
    assert 100 < frames.mean() < 255


def test_a_run_is_resumed_with_more_steps(finished_run):
    directory, _ = finished_run
    before = rows_of(directory)
    process = run(
        "train", f"--resume={directory}", bindings=["Experiment.environment_steps = 2_000"]
    )
    assert process.returncode == 0, process.stderr
    assert "resumed at environment step" in process.stdout + process.stderr
    after = rows_of(directory)
    assert after[: len(before)] == before
    assert after[-1]["environment_steps"] >= 2_000
    assert after[-1]["episodes"] > before[-1]["episodes"]
    assert json.loads((directory / "run.json").read_text())["seed"] == 3


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_says_how_to_resume_and_sets_the_exit_code(tmp_path, number, code):
    directory = tmp_path / "run"
    bindings = [*SMALL, "Experiment.environment_steps = 50_000_000"]
    process = subprocess.Popen(
        command(
            "train", "--gin_file=dqn_cartpole.gin", f"--run_dir={directory}", bindings=bindings
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    shown = []
    for line in process.stdout:
        shown.append(line)
        if "steps" in line and "directory" not in line:  # The first line of progress.
            second = run("train", f"--resume={directory}")
            assert second.returncode == 2
            assert f"being trained by process {process.pid}" in second.stderr
            process.send_signal(number)
            break
    rest, _ = process.communicate(timeout=200)
    shown = "".join(shown) + rest
    assert process.returncode == code, shown
    assert f"actor-learner train --resume {directory}" in shown
    assert "Traceback" not in shown
    assert list((directory / "train" / "checkpoints").glob("ckpt-*.index"))
    assert (directory / "curve.png").exists()


def test_a_typo_is_reported_with_file_line_and_suggestion_before_tensorflow(tmp_path):
    leaf = tmp_path / "mine.gin"
    leaf.write_text("include 'dqn_cartpole.gin'\ndqn.learning_rat = 1e-4\n")
    process = run_by_itself("train", f"--gin_file={leaf}", f"--run_dir={tmp_path / 'run'}")
    assert process.returncode == 2
    assert "mine.gin:2" in process.stderr and "did you mean 'learning_rate'" in process.stderr
    assert not (tmp_path / "run").exists()


def test_an_unused_binding_is_an_error_before_training(tmp_path):
    process = run(
        "train", "--gin_file=dqn_cartpole.gin", f"--run_dir={tmp_path / 'run'}",
        bindings=[*SMALL, "sac.gamma = 0.9"],
    )  # fmt: skip
    assert process.returncode == 2, process.stderr
    assert "sac.gamma" in process.stderr and "never used" in process.stderr
    assert not list((tmp_path / "run").glob("train/checkpoints/ckpt-*"))
    # Nothing was trained, so the corrected command may use the directory.
    corrected = run(
        "train", "--gin_file=dqn_cartpole.gin", f"--run_dir={tmp_path / 'run'}",
        bindings=[*SMALL, "Experiment.environment_steps = 600"],
    )  # fmt: skip
    assert corrected.returncode == 0, corrected.stderr


def test_a_dry_run_builds_everything_and_leaves_nothing(tmp_path):
    process = run(
        "train",
        "--gin_file=dqn_cartpole.gin",
        "--dry_run",
        bindings=(*SMALL, "stored_versions.kept = 2"),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert "nothing was trained" in process.stdout + process.stderr
    assert "CartPole-v1, 16 lanes" in process.stdout + process.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_in_use_is_not_overwritten(finished_run):
    directory, _ = finished_run
    process = run("train", "--gin_file=dqn_cartpole.gin", f"--run_dir={directory}")
    assert process.returncode == 2
    assert "--resume" in process.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["train"], "dqn_cartpole"),
        (["train", "--resume=nowhere"], "nowhere does not exist"),
        (["eval", "nowhere"], "nowhere does not exist"),
        (["check-env", "CartPol-v1"], "CartPole-v1"),
        (["train", "--gin_file=dqn_cartpole.gin", "--run_dir=/proc/sys"], "cannot be written to"),
        (["train", "--gin_file=dqn_cartpole.gin", "--seed=-1"], "--seed must lie in"),
    ],
)
def test_wrong_arguments_end_with_code_2_and_say_what_to_do(arguments, words):
    process = run(*arguments)
    assert process.returncode == 2
    assert words in process.stderr


def test_check_env_reports_a_sound_environment():
    process = run_by_itself("check-env", "CartPole-v1", "--steps=200")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "CartPole-v1" in process.stdout
    for noise in NOISE:
        assert noise not in process.stdout + process.stderr


def test_a_failing_trigger_of_the_user_is_shown_with_its_place(tmp_path):
    (tmp_path / "broken_trigger.py").write_text(
        "import gin\n\n@gin.configurable\ndef broken(train_step=None):\n    return {}['pager']\n"
    )
    (tmp_path / "mine.gin").write_text(
        "import broken_trigger\ninclude 'dqn_cartpole.gin'\nLearner.triggers = [@broken]\n"
    )
    # From another directory: the module is found beside the gin file.
    process = run(
        "train", f"--gin_file={tmp_path / 'mine.gin'}", f"--run_dir={tmp_path / 'run'}",
        bindings=SMALL,
    )  # fmt: skip
    shown = process.stdout + process.stderr
    assert process.returncode == 1, shown
    assert "broken_trigger.py:5, in broken" in shown and shown.count("'pager'") == 1
    assert "KeyError: 'pager'" in (tmp_path / "run/jobs/train-0/log").read_text()
    assert "TriggerError" in shown
    assert list((tmp_path / "run" / "train" / "checkpoints").glob("ckpt-*.index"))


def test_the_second_signal_ends_a_process_that_does_not_listen():
    code = (
        "import sys, time\n"
        "from actor_learner.support import signals\n"
        "with signals.stop_on_signal(sys.stderr):\n"
        "    print('ready', flush=True)\n"
        "    while True: time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=ROOT,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    assert "once more to exit" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=200) == 130


def test_what_a_signal_does_is_told_by_the_view_where_there_is_one():
    code = (
        "import sys, os, signal, threading\n"
        "from actor_learner.support import signals\n"
        "told = threading.Event()\n"
        "with signals.stop_on_signal(sys.stderr) as stop:\n"
        "    stop.say = lambda text: (print('view:', text, flush=True), told.set())\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert told.wait(200) and stop.event.is_set()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "view: SIGINT: saving; once more to exit without saving\n"
    assert process.stderr == ""  # Nothing beside the view, which would overwrite it.


def test_an_environment_that_gives_a_nan_ends_the_run_with_words(tmp_path):
    poison = "('tests.environments.sample_environments:Poison', {'at': 40})"
    process = run(
        "train", "--gin_file=dqn_cartpole.gin", f"--run_dir={tmp_path / 'run'}",
        bindings=[*SMALL, f"GymnasiumEnvironment.wrappers = [{poison}]"],
    )  # fmt: skip
    assert process.returncode == 1, process.stderr
    assert "environment 'CartPole-v1': reward of lane " in process.stderr
    assert " is nan at step " in process.stderr
    assert "Traceback" not in process.stderr
