"""TF-Agents' way to train with several jobs runs on our modules with only its imports changed."""

import itertools
import os
import threading
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.environments import test_envs
from tf_agents.policies import py_tf_eager_policy, random_tf_policy
from tf_agents.specs import tensor_spec

from tests import contract
from tests.naming import conftest as servers

OURS = {
    "tf_agents.environments.suite_mujoco": "actor_learner.environments.suite_mujoco",
    "tf_agents.experimental.distributed.reverb_variable_container": (
        "actor_learner.parameters.reverb_variable_container"
    ),
    "tf_agents.replay_buffers.reverb_replay_buffer": "actor_learner.replay.reverb_replay_buffer",
    "tf_agents.replay_buffers.reverb_utils": "actor_learner.replay.observers",
    "tf_agents.train.actor": "actor_learner.acting.actor",
    "tf_agents.train.learner": "actor_learner.learning.learner",
    "tf_agents.train.triggers": "actor_learner.learning.triggers",
}
SCRIPT = "tests.scripts.distributed_sac"


@pytest.fixture
def script(tmp_path):
    return contract.load_with_imports_replaced(SCRIPT, OURS, tmp_path)


def in_threads(*calls):
    """Runs the calls at the same time; returns their results, and raises the first error."""
    results, failures = [None] * len(calls), []

    def run(index, call):
        try:
            results[index] = call()
        except BaseException as error:  # noqa: B036 - re-raised below.
            failures.append(error)

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not failures:
            thread.join(0.1)
    if failures:
        raise failures[0]
    return results


@pytest.mark.timeout(400)
def test_learner_actor_and_evaluator_find_one_another_and_train(script, tmp_path):
    port = servers.free_port()
    address, root_dir = f"localhost:{port}", str(tmp_path / "root")
    environment, reported, finished = "InvertedPendulum-v5", [], threading.Event()

    # Each does something even where training is over before it has begun.
    turns = itertools.count()

    def collect():
        return script.collect(
            root_dir, address, environment, lambda: not finished.is_set() or next(turns) < 2
        )

    def train():
        script.train(root_dir, address, environment, num_iterations=20)
        finished.set()

    def evaluate():
        policy = script.load_policy(root_dir, "greedy_policy")
        script.evaluate(
            os.path.join(root_dir, "eval"),
            script.suite_mujoco.load(environment),
            policy,
            script.connect(address),
            is_running=lambda: not (finished.is_set() and reported),
            interval=5,
            report=lambda step, value: reported.append((step, value)),
        )

    server, _, collected, _ = in_threads(
        lambda: script.serve(root_dir, port),
        train,
        collect,
        evaluate,
    )
    assert collected > 0
    steps = [step for step, _ in reported]
    assert steps == sorted(set(steps)) and 0 <= steps[0] and steps[-1] <= 20
    assert all(value >= 1.0 for _, value in reported)  # One for each step that it stays up.
    tables = server.localhost_client().server_info(60)
    assert tables[script.reverb_replay_buffer.DEFAULT_TABLE].current_size > 25
    server.stop()


class RisingTrainStep:
    """Stands for a variable container whose learner makes one step between two updates."""

    def __init__(self):
        self.step = -1

    def update(self, variables):
        self.step += 1
        variables["train_step"].assign(self.step)


def test_an_evaluator_writes_a_summary_at_each_interval_and_reports_the_return(script, tmp_path):
    env = test_envs.CountingEnv(steps_per_episode=4)
    policy = py_tf_eager_policy.PyTFEagerPolicy(
        random_tf_policy.RandomTFPolicy(
            tensor_spec.from_spec(env.time_step_spec()), tensor_spec.from_spec(env.action_spec())
        )
    )
    container = mock.create_autospec(script.reverb_variable_container.ReverbVariableContainer)
    rising, reported = RisingTrainStep(), []
    container.update.side_effect = rising.update
    with mock.patch.object(tf.summary, "scalar", autospec=True) as scalar:
        script.evaluate(
            str(tmp_path / "eval"),
            env,
            policy,
            container,
            is_running=lambda: rising.step <= 10,
            interval=5,
            report=lambda step, value: reported.append((step, value)),
        )
    names = [call.kwargs["name"] for call in scalar.call_args_list]
    assert names.count("Metrics/eval_actor/AverageReturn") == 3
    assert [step for step, _ in reported] == [0, 5, 10]
    assert all(isinstance(value, np.float32) for _, value in reported)
