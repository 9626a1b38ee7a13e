"""`actor-learner plot`, and the runs that patterns mean to it, to `eval` and to `params`."""

import json
import os
import signal
import subprocess

import imageio.v3 as imageio
import numpy as np
import pytest

from actor_learner import cli
from actor_learner.commands import run_paths
from actor_learner.reporting import curve


def make_run(directory, returns, name="dqn", interval=1_000):
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"seed": 1, "name": name}))
    with open(directory / "metrics.jsonl", "w") as file:
        for index, value in enumerate(returns):
            row = {"environment_steps": (index + 1) * interval, "eval_return": value}
            file.write(json.dumps(row) + "\n")


@pytest.fixture
def runs(tmp_path):
    for seed in (1, 2, 10):
        make_run(tmp_path / "ours" / f"seed-{seed}", [0.0, 10.0 * seed, 20.0], interval=900 + seed)
    make_run(tmp_path / "theirs-1", [1.0, 2.0], name="theirs")
    make_run(tmp_path / "theirs-2", [3.0, 4.0], name="theirs")
    return tmp_path


def test_patterns_and_directories_of_runs_are_expanded_in_order_and_each_once(runs):
    found = run_paths.expand([str(runs / "*"), str(runs / "theirs-1")])
    assert [run.path.relative_to(runs).as_posix() for run in found] == [
        *("ours/seed-1", "ours/seed-2", "ours/seed-10", "theirs-1", "theirs-2")
    ]
    assert [run_paths.group(run) for run in found] == ["ours"] * 3 + ["theirs"] * 2


def test_groups_are_drawn_and_their_ends_printed_with_intervals(runs, capsys):
    out = runs / "picture.png"
    assert cli.main(["plot", str(runs / "*"), f"--out={out}", "--target=15"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "ours: 20.00 [20.00, 20.00] at the end, 3 seeds"
    assert shown[1].startswith("theirs: 3.00 [2.00, 4.00] at the end, 2 seeds")
    picture = imageio.imread(out)
    assert picture.shape[1] == 1200 and picture.std() > 5


def test_a_label_joins_runs_of_different_names(runs, capsys):
    out = runs / "picture.png"
    assert cli.main(["plot", f"all={runs}/*", f"--out={out}"]) == 0
    assert "all: " in capsys.readouterr().out


def test_the_interval_is_that_of_the_mean_over_seeds():
    values = np.random.default_rng(0).normal(5.0, 2.0, size=[400, 3])
    low, high = curve._bootstrap_interval(values)
    np.testing.assert_allclose(high - low, 2 * 1.96 * 2.0 / np.sqrt(400), rtol=0.15)
    assert np.all(low < values.mean(axis=0)) and np.all(values.mean(axis=0) < high)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["plot", "nowhere-*"], "nowhere-* does not exist"),
        (["plot", "{runs}", "--metric=loss"], "--metric=loss is in none of these runs"),
        (["plot", "{runs}", "--out=a.pdf"], "must end in .png"),
        (["eval", "{runs}/theirs-*", "--video=a.mp4"], "are for one run, but"),
        (["params", "tag", "{runs}/theirs-*", "1", "good"], "means 2 directories"),
        (["train", "--seeds=1,1", "--gin_file=dqn_cartpole"], "--seeds=1,1: different numbers"),
        (["train", "--seeds=a", "--gin_file=dqn_cartpole"], "--seeds=a: write numbers"),
        (["train", "--seeds=1", "--seed=2", "--gin_file=dqn_cartpole"], "--seeds and --seed"),
    ],
)
def test_what_cannot_be_meant_is_refused(runs, arguments, message, capsys):
    code = cli.main([argument.format(runs=runs / "ours") if "{runs}/" not in argument
                     else argument.format(runs=runs) for argument in arguments])  # fmt: skip
    assert code == 2
    assert message in capsys.readouterr().err


def test_seeds_are_trained_one_by_one_until_one_is_interrupted(tmp_path, monkeypatch, capsys):
    started = []

    class Child:
        def __init__(self, command):
            started.append(command[-2:])

        def wait(self):
            return {1: 0, 2: 1, 3: 130}[len(started)]

    monkeypatch.setattr(subprocess, "Popen", Child)
    arguments = ["train", "--gin_file=dqn_cartpole", "--seeds=4,5,6,7", f"--run_dir={tmp_path}/x"]
    assert cli.main(arguments) == 130
    assert started == [
        [f"--run_dir={tmp_path}/x/seed-{seed}", f"--seed={seed}"] for seed in (4, 5, 6)
    ]
    assert "1 of 4 seeds are trained. Plot: " in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["wait", "start"])
def test_a_signal_ends_the_seed_that_is_trained_and_with_it_the_series(
    tmp_path, monkeypatch, number, when
):
    class Child:
        told = []

        def __init__(self, command):
            if when == "start":
                os.kill(os.getpid(), number)

        def send_signal(self, number):
            self.told.append(number)

        def wait(self):
            if when == "wait":
                os.kill(os.getpid(), number)
            return -self.told[-1]

    monkeypatch.setattr(subprocess, "Popen", Child)
    arguments = ["train", "--gin_file=dqn_cartpole", "--seeds=4,5", f"--run_dir={tmp_path}/x"]
    # `nohup make test` ignores SIGHUP, and so would the series.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert cli.main(arguments) == 143
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert Child.told == [signal.SIGTERM]
