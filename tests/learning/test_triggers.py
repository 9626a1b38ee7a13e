"""Tests of `actor_learner.learning.triggers`."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.policies import policy_loader

from actor_learner.learning import triggers
from actor_learner.support import errors
from tests.learning import tiny_agent


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def agent():
    step = tiny_agent.train_step()
    specs = tiny_agent.TinyAgent(step)
    network = q_network.QNetwork(
        specs.time_step_spec.observation, specs.action_spec, fc_layer_params=(3,)
    )
    made = dqn_agent.DqnAgent(
        specs.time_step_spec,
        specs.action_spec,
        q_network=network,
        optimizer=tf.keras.optimizers.Adam(),
        train_step_counter=step,
    )
    made.initialize()
    return made


class Metric:
    """A metric with the one method that is used."""

    value = np.float32(0.0)

    def result(self):
        return self.value


def set_weights(agent, value):
    for variable in agent.policy.variables():
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))


def test_policies_are_exported_once_and_checkpoints_at_each_firing(tmp_path, agent):
    step = agent.train_step_counter
    step.assign(0)
    set_weights(agent, 0.5)
    metric = Metric()
    trigger = triggers.PolicySavedModelTrigger(
        str(tmp_path), agent, step, interval=10, metadata_metrics={"env_step": metric}
    )
    names = ["collect_policy", "greedy_policy", "policy"]
    assert sorted(os.listdir(tmp_path)) == names
    for name in names:
        assert os.path.exists(tmp_path / name / "policy_specs.pbtxt")
    trigger(9)
    assert sorted(os.listdir(tmp_path)) == names

    set_weights(agent, 0.25)
    step.assign(12)
    metric.value = np.float32(345.0)
    trigger(12)
    path = tmp_path / "checkpoints" / "policy_checkpoint_0000000012"
    assert os.listdir(tmp_path / "checkpoints") == [path.name]

    loaded = policy_loader.load(str(tmp_path / "greedy_policy"), str(path))
    assert loaded.get_train_step() == 12
    assert loaded.get_metadata()["env_step"] == 345.0
    for variable in loaded.model_variables:
        assert np.unique(variable.numpy()).tolist() == [0.25]


def test_a_half_written_export_is_written_again_and_a_finished_one_is_not(tmp_path, agent):
    def make():
        triggers.PolicySavedModelTrigger(
            str(tmp_path),
            agent,
            agent.train_step_counter,
            interval=10,
            save_collect_policy=False,
            save_greedy_policy=False,
        )

    half = tmp_path / "policy"
    half.mkdir()
    (half / "saved_model.pb").write_bytes(b"half")
    (tmp_path / "policy.unfinished").mkdir()
    (tmp_path / "policy.unfinished" / "left").write_bytes(b"over")
    make()
    assert os.listdir(tmp_path) == ["policy"]
    assert not (half / "left").exists()
    tf.saved_model.load(str(half))
    written = os.stat(half / "saved_model.pb").st_mtime_ns
    make()
    assert os.stat(half / "saved_model.pb").st_mtime_ns == written


def test_a_save_that_fails_leaves_nothing_under_the_final_name(tmp_path, agent, monkeypatch):
    trigger = triggers.PolicySavedModelTrigger(
        str(tmp_path), agent, agent.train_step_counter, interval=10, save_greedy_policy=False
    )

    def die(path, options=None):
        tf.io.gfile.makedirs(path)
        raise OSError("disk full")

    monkeypatch.setattr(trigger._raw_policy_saver, "save_checkpoint", die)
    with pytest.raises(OSError, match="disk full"):
        trigger(10)
    assert not [n for n in os.listdir(tmp_path / "checkpoints") if not n.endswith(".unfinished")]


def test_saving_in_the_background_skips_while_busy_and_reports_failures(
    tmp_path, agent, monkeypatch
):
    trigger = triggers.PolicySavedModelTrigger(
        str(tmp_path),
        agent,
        agent.train_step_counter,
        interval=10,
        async_saving=True,
        save_greedy_policy=False,
        save_collect_policy=False,
    )
    started, proceed = threading.Event(), threading.Event()
    save, saved = trigger._raw_policy_saver.save_checkpoint, []

    def slow(path, options=None):
        started.set()
        assert proceed.wait(60)
        saved.append(path)
        save(path)

    monkeypatch.setattr(trigger._raw_policy_saver, "save_checkpoint", slow)
    trigger(10)
    assert started.wait(60)
    trigger(20)  # Skipped: the first is not finished.
    proceed.set()
    trigger.on_stop(20)
    assert len(saved) == 1
    assert len(os.listdir(tmp_path / "checkpoints")) == 1

    trigger = triggers.PolicySavedModelTrigger(
        str(tmp_path),
        agent,
        agent.train_step_counter,
        interval=10,
        async_saving=True,
        save_greedy_policy=False,
        save_collect_policy=False,
    )

    def fail(path, options=None):
        raise OSError("disk full")

    monkeypatch.setattr(trigger._raw_policy_saver, "save_checkpoint", fail)
    trigger(10)
    with pytest.raises(OSError, match="disk full"):
        trigger.on_stop(10)


def test_metadata_and_background_saving_do_not_go_together(tmp_path, agent):
    with pytest.raises(NotImplementedError, match="metadata_metrics"):
        triggers.PolicySavedModelTrigger(
            str(tmp_path),
            agent,
            agent.train_step_counter,
            interval=10,
            async_saving=True,
            metadata_metrics={"env_step": Metric()},
        )


def test_speed_is_measured_from_the_restored_step_and_logged_by_seconds(monkeypatch):
    clock = Clock()
    step = tiny_agent.train_step(0)
    trigger = triggers.StepPerSecondLogTrigger(step, None, seconds=10, clock=clock)
    step.assign(50_000)
    clock.now = 100.0
    trigger.set_start(50_000)
    lines = []
    monkeypatch.setattr(triggers.logging, "info", lambda text, *args: lines.append(text % args))
    step.assign(50_100)
    clock.now = 105.0
    trigger(50_100)
    assert lines == []
    step.assign(50_400)
    clock.now = 110.0
    trigger(50_400)
    assert lines == ["Step: 50400, 40.000 steps/sec"]


def test_speed_is_not_logged_to_the_terminal_if_told_so(monkeypatch):
    lines = []
    monkeypatch.setattr(triggers.logging, "info", lambda text, *args: lines.append(text % args))
    trigger = triggers.StepPerSecondLogTrigger(tiny_agent.train_step(), 5, log_to_terminal=False)
    trigger(5)
    assert lines == []


def make_server(directory):
    return reverb.Server(
        tables=[reverb.Table.queue("queue", 10)],
        port=None,
        checkpointer=reverb.checkpointers.DefaultCheckpointer(str(directory)),
    )


def test_replay_tables_are_saved_by_steps_or_seconds(tmp_path):
    clock = Clock()
    server = make_server(tmp_path)
    try:
        client = reverb.Client(f"localhost:{server.port}")
        client.insert([np.float32(1.0)], {"queue": 1.0})
        trigger = triggers.ReverbCheckpointTrigger(
            tiny_agent.train_step(), 10, client, seconds=60, clock=clock
        )
        trigger(9)
        assert os.listdir(tmp_path) == []
        trigger(10)
        first = os.listdir(tmp_path)
        assert len(first) == 1
        clock.now = 61.0
        trigger(11)
        assert len(os.listdir(tmp_path)) == 1 and os.listdir(tmp_path) != first
    finally:
        server.stop()


def test_a_replay_save_that_fails_says_what_to_look_at(tmp_path):
    directory = tmp_path / "tables"
    server = make_server(directory)
    try:
        client = reverb.Client(f"localhost:{server.port}")
        directory.write_text("a file where the directory should be")
        trigger = triggers.ReverbCheckpointTrigger(tiny_agent.train_step(), 10, client)
        with pytest.raises(errors.ReplayError, match="could not save its tables at train step 0"):
            trigger(10)
    finally:
        server.stop()


def test_a_replay_save_that_never_ends_is_given_up():
    release = threading.Event()

    class Client:
        def checkpoint(self):
            release.wait(60)

        def __repr__(self):
            return "Client(localhost:8008)"

    trigger = triggers.ReverbCheckpointTrigger(
        tiny_agent.train_step(7), 10, Client(), timeout_seconds=0.01
    )
    try:
        with pytest.raises(errors.ReplayTimeoutError, match="localhost:8008.*at train step 7"):
            trigger(10)
    finally:
        release.set()
