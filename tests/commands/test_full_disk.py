"""Runs whose disk fills up, as their users meet them: real processes on a real small disk."""

import contextlib
import csv
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.reporting import jsonl
from tests import small_disk as small_disk_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINDINGS = (
    "Experiment.environment_steps = 8_000",
    "Evaluation.target_return = None",
    "Experiment.initial_random_steps = 200",
    "Experiment.updates_per_step = 0.1",
    "Evaluation.episodes = 2",
    "Reporting.seconds = 0.1",
    "Checkpoints.seconds = 0.5",
    "Learner.summary_interval = 50",
    "dqn.fc_layer_params = (16,)",
)
# Each evaluation exports a policy, which takes longer than the training between two of them.
FEW_EVALUATIONS = "--gin_param=Evaluation.interval = 4_000"
HALF_DONE = re.compile(
    r"_temp|tempstate|\.unfinished|\.part$|\.new\b|\.old\b|^\.\d+\.|\.tmp|\.former"
)

pytestmark = pytest.mark.timeout(500)


class Watched:
    """A command on the small disk, with all that it has said so far.

    It does not finish before `end` is called.
    """

    def __init__(self, disk, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment.pop("ACTOR_LEARNER_REGISTRY", None)
        self.run = disk.path / "run"
        # Training is slow until the disk was full for long enough.
        self._may_finish = disk.mount_point.parent / "may_finish"
        slow = {"path": str(self._may_finish), "seconds": 0.02}
        wrapper = f"('tests.environments.sample_environments:SlowUntil', {slow})"
        bindings = (*BINDINGS, f"GymnasiumEnvironment.wrappers = [{wrapper}]")
        self.process = subprocess.Popen(
            disk.command(
                *(sys.executable, "-m", "actor_learner.cli", *arguments),
                *("--gin_file=dqn_cartpole.gin", f"--run_dir={disk.mount_point / 'run'}"),
                *("--seed=1", *(f"--gin_param={binding}" for binding in bindings)),
            ),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.said += line

    def wait_for(self, condition, seconds=200.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def end(self, seconds=200.0):
        self._may_finish.touch()
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.kill()
        self._reader.join(60.0)
        return code

    def checkpoints(self):
        return sorted((self.run / "train" / "checkpoints").glob("ckpt-*.index"))


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    made = small_disk_lib.SmallDisk(tmp_path / "disk", 48)
    yield made
    made.close()


def assert_nothing_is_half_done(run):
    for path in run.rglob("*"):
        assert not HALF_DONE.search(path.name), path
    for path in (run / "train" / "checkpoints").glob("ckpt-*.index"):
        reader = tf.train.load_checkpoint(str(path).removesuffix(".index"))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    rows = jsonl.read_rows(run / "metrics.jsonl")
    with open(run / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    # One of the two may have had a little more room than the other.
    for row, cells in zip(rows, table):
        assert int(cells["environment_steps"]) == row["environment_steps"]
    for path in (run / "experience").glob("shard-*"):
        with np.load(path) as shard:
            assert all(len(shard[name]) for name in shard.files)
    return rows


def test_training_goes_on_while_the_disk_is_full_and_everything_is_written_afterwards(disk):
    train = Watched(disk, "train", FEW_EVALUATIONS, "--gin_param=Experiment.record = True")
    train.wait_for(train.checkpoints)
    disk.fill()
    train.wait_for(lambda: "NOT SAVED: the checkpoint" in train.said)
    train.wait_for(lambda: "NOT SAVED: metrics.csv" in train.said)
    disk.free()
    assert train.end() == 0, train.said
    assert "saved at last" in train.said
    assert "Finished" in train.said
    assert "NOT SAVED:  " not in train.said  # As the last lines would say it.
    rows = assert_nothing_is_half_done(train.run)
    assert rows[-1]["environment_steps"] >= 8_000
    assert len((train.run / "metrics.csv").read_text().splitlines()) == len(rows) + 1
    assert all(b["seconds"] >= a["seconds"] for a, b in zip(rows, rows[1:]))
    for path in (
        "best/score.json",
        "best/policy/saved_model.pb",
        "policies/greedy_policy/saved_model.pb",
        "config.gin",
        "operative_config.gin",
        "curve.png",
    ):
        assert (train.run / path).stat().st_size > 0, path
    newest = tf.train.latest_checkpoint(train.run / "train" / "checkpoints")
    assert newest.endswith(f"ckpt-{rows[-1]['train_steps']}")
    events = list((train.run / "train").glob("events.out.tfevents.*"))
    drawn = set()
    for path in events:
        # The learner's own file may have been cut in a record; TensorBoard reads up to there.
        with contextlib.suppress(tf.errors.DataLossError):
            for event in tf.compat.v1.train.summary_iterator(str(path)):
                for value in event.summary.value:
                    if value.tag == "charts/episodic_return":
                        drawn.add(event.step)
    assert {row["environment_steps"] for row in rows if "return" in row} <= drawn
    recorded = sum(np.load(path)["head"][1] for path in (train.run / "experience").glob("shard-*"))
    assert recorded * 16 >= 8_000  # No step is missing: 16 lanes.


def test_a_disk_that_stays_full_ends_with_exit_code_1_and_leaves_what_was_saved_before(disk):
    train = Watched(
        disk,
        "train",
        FEW_EVALUATIONS,
        "--gin_param=full_disk.final_wait_seconds = 2",
        "--gin_param=Checkpoints.save_replay = True",
    )
    train.wait_for(train.checkpoints)
    disk.fill()
    assert train.end() == 1, train.said
    assert "waiting up to 2 s for room on the disk" in train.said
    last = train.said[train.said.index("Finished") :]
    for what in ("the checkpoint", "the replay's contents", "the exported policies", "metrics.csv"):
        assert f"NOT SAVED:    {what}" in last, train.said
    assert train.checkpoints()
    assert_nothing_is_half_done(train.run)
    assert not list((train.run / "replay" / "incoming").iterdir())


def test_jobs_and_their_launcher_survive_a_full_disk(disk):
    more = ("Checkpoints.replay_seconds = 1", "Evaluation.interval = 1_000")
    up = Watched(disk, "up", "--actors=1", *(f"--gin_param={binding}" for binding in more))
    up.wait_for(up.checkpoints)
    disk.fill()
    up.wait_for(lambda: re.search(r"learner-0 running.*NOT SAVED: ", up.said))
    disk.free()
    assert up.end() == 0, up.said
    assert "restart" not in up.said
    rows = assert_nothing_is_half_done(up.run)
    assert rows[-1]["environment_steps"] >= 8_000
    for path in ("best/score.json", "policies/greedy_policy/saved_model.pb", "curve.png"):
        assert (up.run / path).stat().st_size > 0, path
    assert list((up.run / "parameters" / "policy").glob("*.npz"))
    assert list((up.run / "replay").glob("checkpoint-*"))


@pytest.mark.slow
def test_jobs_on_a_disk_that_stays_full_end_with_exit_code_1_and_are_not_restarted(disk):
    up = Watched(
        disk, "up", "--actors=1", FEW_EVALUATIONS, "--gin_param=full_disk.final_wait_seconds = 1"
    )
    up.wait_for(up.checkpoints)
    disk.fill()
    assert up.end() == 1, up.said
    assert "learner-0 has ended and could NOT SAVE" in up.said
    assert re.search(r"learner-0: NOT SAVED: .*the checkpoint", up.said)
    assert re.search(r"replay-0: NOT SAVED: the replay's contents", up.said)
    assert "restart" not in up.said
    assert up.checkpoints()
    assert_nothing_is_half_done(up.run)
