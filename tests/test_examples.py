"""The examples run, and so do TF-Agents' published scripts with only their imports changed."""

import json
import os
import pathlib
import re
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


def run(arguments, python_path=(), **kwargs):
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *python_path])),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
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
            "--gin_param=Evaluation.interval = 0",
            "--gin_param=WeightNormTrigger.interval = 100",
        ]
    )
    steps = [int(line.split()[0]) for line in open(directory / "weight_norm.txt")]
    assert len(steps) > 3 and steps == sorted(steps)


def test_the_custom_trigger_example_is_short():
    lines = (ROOT / "examples" / "custom_trigger.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 30


SHORT = (
    "--gin_param=Experiment.initial_random_steps = 200",
    "--gin_param=Evaluation.interval = 0",
    "--gin_param=Evaluation.episodes = 2",
)


def test_an_environment_a_logger_and_a_trigger_with_state_of_ones_own_survive_a_resume(tmp_path):
    directory = tmp_path / "run"
    steps = "--gin_param=Experiment.environment_steps = {}"
    run(["train.py", "--gin_file=examples/own_environment.gin", f"--run_dir={directory}",
         steps.format(600), *SHORT])  # fmt: skip
    calls = int((directory / "calls.txt").read_text().split()[0])
    assert calls >= 2
    (record,) = (directory / "records.txt").read_text().splitlines()
    assert int(record.split()[0]) >= 600
    run(["train.py", f"--resume={directory}", steps.format(1_200)])
    now, at = map(int, (directory / "calls.txt").read_text().split())
    assert now > calls + 1 and at > 600  # Counted on, and saw the latest line of metrics.


@pytest.mark.parametrize(
    "name, more",
    [
        ("own_agent", ["--gin_param=Experiment.replay = @PrioritizedReplay()"]),
        ("own_network", []),
        ("own_postprocessor", []),
    ],
)
def test_an_agent_a_network_a_stream_and_a_postprocessor_run_from_gin(name, more, tmp_path):
    directory = tmp_path / "run"
    run(["train.py", f"--gin_file=examples/{name}.gin", f"--run_dir={directory}",
         "--gin_param=Experiment.environment_steps = 600", *SHORT, *more])  # fmt: skip
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").open()]
    assert rows[-1]["train_steps"] >= 50
    if name == "own_agent":
        assert "q_value" in rows[-1] and rows[-1]["epsilon_greedy"] == 0.1


def test_a_metric_of_ones_own_is_measured_by_an_actor():
    shown = run(["examples/own_metric.py"]).stdout
    assert 0.1 < float(shown.split()[-1]) < 1.0


PUBLISHED = {
    "dqn": (
        "tf_agents.examples.dqn.dqn_train_eval",
        {**OURS, "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium"},
        ["train_eval.initial_collect_steps = 200", "train_eval.eval_episodes = 2"],
        ["--num_iterations=40", "--eval_interval=20"],
    ),
    "dqn_rnn": (
        "tf_agents.examples.dqn.dqn_train_eval_rnn",
        {**OURS, "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium"},
        [
            "train_eval.initial_collect_steps = 100",
            "train_eval.eval_episodes = 1",
            "train_eval.batch_size = 8",
        ],
        ["--num_iterations=10", "--eval_interval=10", "--env_name=CartPole-v1"]
        + ["--train_sequence_length=5"],
    ),
    "sac": (
        "tf_agents.examples.sac.haarnoja18.sac_train_eval",
        {**OURS, "tf_agents.environments.suite_mujoco": "actor_learner.environments.suite_mujoco"},
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
        ["--num_iterations=40", "--eval_interval=20"],
    ),
    "dqn_atari": (
        "tf_agents.examples.dqn.mnih15.dqn_train_eval_atari",
        {**OURS, "tf_agents.environments.suite_atari": "actor_learner.environments.suite_atari"},
        [
            "train_eval.env_name = 'PongNoFrameskip-v4'",
            "train_eval.initial_collect_steps = 60",
            "train_eval.batch_size = 4",
            "train_eval.eval_episodes = 1",
            "train_eval.max_episode_frames_collect = 50",
            "train_eval.max_episode_frames_eval = 20",
            "train_eval.replay_capacity = 1000",
        ],
        ["--num_iterations=4", "--eval_interval=2"],
    ),
}
SLOW = {"dqn_atari"}


def ran_to_its_end(script, root_dir, arguments, python_path=()):
    """Runs a ported script and looks at what it has left and said."""
    process = run([script, f"--root_dir={root_dir}", *arguments], python_path=python_path)
    assert (root_dir / "policies" / "greedy_policy" / "policy_specs.pbtxt").exists()
    assert list((root_dir / "train").glob("events.out.tfevents.*"))
    assert "AverageReturn = " in process.stderr
    # The initial actor and the next share environment and observer: nothing to warn of.
    from_us = r"^[WE]\d{4} .*(lane_streams|item_writer|actor|observers|learner|triggers)\.py:\d+\]"
    assert re.findall(from_us, process.stderr, re.MULTILINE) == []
    return process


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in sorted(PUBLISHED)],
)
def test_a_published_tf_agents_script_runs_with_only_its_imports_changed(name, tmp_path):
    module, replacements, bindings, flags = PUBLISHED[name]
    script = tmp_path / f"{name}_train_eval.py"
    script.write_text(contract.with_imports_replaced(module, replacements))
    ran_to_its_end(
        script,
        tmp_path / "root",
        [*flags, *[f"--gin_bindings={binding}" for binding in bindings]],
    )


def test_the_published_ppo_script_and_its_observer_run_with_only_their_imports_changed(tmp_path):
    examples = "tf_agents.examples.ppo.schulman17"
    package = tmp_path / "ported"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train_eval_lib.py").write_text(
        contract.with_imports_replaced(
            f"{examples}.train_eval_lib",
            {
                **OURS,
                "tf_agents.train.ppo_learner": "actor_learner.learning.ppo_learner",
                "tf_agents.environments.suite_mujoco": "actor_learner.environments.suite_mujoco",
            },
        )
    )
    script = tmp_path / "ppo_clip_train_eval.py"
    script.write_text(
        contract.with_imports_replaced(
            f"{examples}.ppo_clip_train_eval",
            {f"{examples}.train_eval_lib": "ported.train_eval_lib"},
        )
    )
    bindings = [
        "train_eval.env_name = 'InvertedPendulum-v5'",
        "train_eval.collect_sequence_length = 64",
        "train_eval.minibatch_size = 32",
        "train_eval.num_epochs = 2",
        "train_eval.eval_episodes = 1",
        "train_eval.summary_interval = 4",
    ]
    process = ran_to_its_end(
        script,
        tmp_path / "root",
        [
            "--num_iterations=3",
            "--eval_interval=4",
            *[f"--gin_bindings={binding}" for binding in bindings],
        ],
        python_path=[tmp_path],
    )
    # Two minibatches of 32 in each of two epochs of an item of 64 steps, three times.
    assert re.findall(r"Step: (\d+),", process.stderr) == ["4", "8", "12"]
