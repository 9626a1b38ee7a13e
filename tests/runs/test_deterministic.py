"""Two runs with one seed give the same metrics, bit for bit."""

import re
import subprocess
import sys

import pytest

from actor_learner.reporting import jsonl
from actor_learner.support import errors
from tests import forked
from tests.runs import test_one_process

BINDINGS = {
    "dqn_cartpole": (
        "Experiment.environment_steps = 1_500",
        # Turns that are shorter than a window: learning must wait for the first one.
        "Experiment.initial_random_steps = 0",
        "Experiment.collect_steps = 64",
        "dqn.fc_layer_params = (16,)",
    ),
    # Unrolls come through the queue, whose order is that of writing.
    "ppo_cartpole": (
        "Experiment.environment_steps = 1_500",
        "GymnasiumEnvironment.num_envs = 4",
        "UnrollQueue.unroll_length = 16",
        "ppo.fc_layer_params = (16,)",
        "ppo.epochs = 2",
        "ppo.minibatch_size = 16",
    ),
}
ALL = (
    "Experiment.deterministic = True",
    "Evaluation.interval = 500",
    "Evaluation.target_return = None",
)


def metrics(tmp_path, gin_file, name, seed, *, by_itself=False):
    """Rows of a run in a process of its own, without what a clock says.

    A process that is started by itself has another order of sets and hashes than forked ones.
    """
    run = tmp_path / name
    command = ["actor_learner.cli", "train", f"--gin_file={gin_file}"]
    command += [f"--gin_param={binding}" for binding in (*ALL, *BINDINGS[gin_file])]
    command += [f"--seed={seed}", f"--run_dir={run}"]
    if by_itself:
        subprocess.run(
            [sys.executable, "-m", *command], check=True, capture_output=True, timeout=240
        )
    else:
        done = forked.run(*command, timeout=240)
        assert done.returncode == 0, done.stderr[-4_000:]
    rows = jsonl.read_rows(run / "metrics.jsonl")
    return [
        {
            k: v
            for k, v in row.items()
            if k != "seconds"
            and not k.endswith("_per_second")
            and not re.fullmatch("(actor|learner)_(stepping|inferring|writing|training|waiting)", k)
        }
        for row in rows
    ]


@pytest.mark.parametrize("gin_file", sorted(BINDINGS))
def test_two_runs_with_one_seed_give_the_same_metrics_and_another_seed_others(tmp_path, gin_file):
    first = metrics(tmp_path, gin_file, "one", seed=3, by_itself=True)
    second = metrics(tmp_path, gin_file, "two", seed=3)
    assert first == second
    assert sum("eval_return" in row for row in first) >= 2
    assert all("loss" in row for row in first[-3:])
    assert metrics(tmp_path, gin_file, "three", seed=4) != first


def test_what_cannot_repeat_is_refused(tmp_path):
    from actor_learner.replay.streams import lane_replay

    with pytest.raises(errors.ConfigError, match="cannot be seeded"):
        # Refused before TensorFlow is switched to deterministic operations.
        experiment = test_one_process.make_experiment(
            deterministic=True, replay=lane_replay.LaneReplay()
        )
        env = experiment.make_environment(0)
        import tensorflow as tf

        steps = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
        experiment.plan(experiment.make_algorithm(env, *steps), 4)
    with pytest.raises(errors.ConfigError, match="exclude each other"):
        test_one_process.make_experiment(deterministic=True, overlap=True)
