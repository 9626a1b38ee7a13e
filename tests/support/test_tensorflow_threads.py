"""The number of TensorFlow's threads is set by every program, before TensorFlow starts."""

import os
import pathlib
import subprocess
import sys

import pytest

from actor_learner.support import errors, tensorflow_threads

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAY = """
import tensorflow as tf
print("threads", tf.config.threading.get_intra_op_parallelism_threads())
"""
TRAIN = """
from actor_learner import cli
assert cli.main(["train", *{arguments!r}]) == 0
"""
JOB = """
import sys
from actor_learner.jobs import main, worker

class Idle(worker.Worker):
    def configure(self):
        pass

    def poll(self):
        return True

assert main.run_job("idle", lambda arguments: Idle(), {arguments!r}) == 0
"""
LATE = """
import tensorflow as tf
from actor_learner.support import tensorflow_threads
tensorflow_threads.tensorflow_threads(per_operation=1, operations=2)
assert tf.config.threading.get_inter_op_parallelism_threads() == 2
tf.constant(1)
tensorflow_threads.tensorflow_threads(per_operation=1)
tensorflow_threads.tensorflow_threads(per_operation=3)
"""
LEAF = "--gin_file=dqn_cartpole.gin"


def run(program, directory):
    process = subprocess.run(
        [sys.executable, "-c", program + SAY], capture_output=True, text=True, cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=200,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process


@pytest.mark.parametrize("binding, threads", [((), 1), (("= 2",), 2), (("= None",), 0)])
def test_training_sets_them_as_configured(tmp_path, binding, threads):
    chosen = [f"--gin_param=tensorflow_threads.per_operation {value}" for value in binding]
    arguments = [LEAF, "--dry_run", *chosen]
    said = run(TRAIN.format(arguments=arguments), tmp_path).stdout
    assert said.splitlines()[-1] == f"threads {threads}"


def test_jobs_set_them_too(tmp_path):
    arguments = [LEAF, f"--run={tmp_path}/run", "--index=0"]
    said = run(JOB.format(arguments=arguments), tmp_path).stdout
    assert said.splitlines()[-1] == "threads 1"


def test_it_is_said_when_tensorflow_has_started(tmp_path):
    process = run(LATE, tmp_path)
    assert process.stdout.splitlines()[-1] == "threads 1"
    late = [line for line in process.stderr.splitlines() if "comes too late" in line]
    assert len(late) == 1 and "tensorflow_threads.per_operation = 3" in late[0]


def test_less_than_one_thread_is_refused():
    with pytest.raises(errors.ConfigError, match="tensorflow_threads.operations .* got 0"):
        tensorflow_threads.tensorflow_threads(operations=0)
