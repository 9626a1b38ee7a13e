"""The examples run, and so do TF-Agents' published scripts with only their imports changed."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests import contract

ROOT = pathlib.Path(__file__).resolve().parents[1]

OURS = {
    "tf_agents.train.actor": "actor_learner.acting.actor",
    "tf_agents.train.learner": "actor_learner.learning.learner",
    "tf_agents.train.triggers": "actor_learner.learning.triggers",
    "tf_agents.replay_buffers.reverb_replay_buffer": "actor_learner.replay.reverb_replay_buffer",
    "tf_agents.replay_buffers.reverb_utils": "actor_learner.replay.observers",
}


def run(arguments, **kwargs):
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        **kwargs,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process


def test_the_loop_of_tf_agents_documentation_runs_with_our_imports(tmp_path):
    process = run(
        ["examples/tf_agents_style.py", f"--root_dir={tmp_path}", "--num_iterations=1000"]
    )
    assert "step 1000:" in process.stdout
    assert list((tmp_path / "policies" / "checkpoints").glob("policy_checkpoint_0000001000*"))
    assert (tmp_path / "policies" / "greedy_policy" / "saved_model.pb").exists()


def test_a_trigger_of_the_users_own_runs_from_gin(tmp_path):
    directory = tmp_path / "run"
    run(
        [
            "train.py",
            "--gin_file=examples/custom_trigger.gin",
            f"--run_dir={directory}",
            "--gin_param=Experiment.environment_steps = 3_000",
            "--gin_param=Experiment.evaluation_interval = 0",
            "--gin_param=WeightNormTrigger.interval = 100",
        ]
    )
    steps = [int(line.split()[0]) for line in open(directory / "weight_norm.txt")]
    assert len(steps) > 3 and steps == sorted(steps)


def test_the_custom_trigger_example_is_short():
    lines = (ROOT / "examples" / "custom_trigger.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 30


PUBLISHED = {
    "dqn": (
        "tf_agents.examples.dqn.dqn_train_eval",
        {**OURS, "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium"},
        ["train_eval.initial_collect_steps = 200", "train_eval.eval_episodes = 2"],
    ),
    "sac": (
        "tf_agents.examples.sac.haarnoja18.sac_train_eval",
        {
            **OURS,
            "tf_agents.environments.suite_mujoco": "actor_learner.environments.suite_gymnasium",
        },
        [
            "train_eval.env_name = 'Pendulum-v1'",
            "train_eval.initial_collect_steps = 300",
            "train_eval.eval_episodes = 1",
            "train_eval.batch_size = 16",
            "train_eval.actor_fc_layers = (16,)",
            "train_eval.critic_joint_fc_layers = (16,)",
            "train_eval.replay_buffer_save_interval = 20",
            "train_eval.replay_capacity = 1000",
        ],
    ),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_tf_agents_script_runs_with_only_its_imports_changed(name, tmp_path):
    module, replacements, bindings = PUBLISHED[name]
    script = tmp_path / f"{name}_train_eval.py"
    script.write_text(contract.with_imports_replaced(module, replacements))
    root_dir = tmp_path / "root"
    run(
        [
            script,
            f"--root_dir={root_dir}",
            "--num_iterations=40",
            "--eval_interval=20",
            *[f"--gin_bindings={binding}" for binding in bindings],
        ]
    )
    assert (root_dir / "policies" / "greedy_policy" / "policy_specs.pbtxt").exists()
    assert list((root_dir / "train").glob("events.out.tfevents.*"))
