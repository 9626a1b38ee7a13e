"""Recorded experience as sequences: as an actor would have written them, for agents with memory."""

import collections

import gin
import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import r2d2
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments import memory
from actor_learner.replay.layouts import window_layout
from actor_learner.replay.recording import experience_recorder, shards
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import (
    mixed_replay,
    recorded_sequences,
    sample_stream,
    sequence_replay,
)
from actor_learner.runs import one_process
from actor_learner.support import errors

LANES = 3


def small_r2d2(world):
    return r2d2.r2d2(
        world, fc_layer_params=(8,), lstm_size=6, head_layer_params=(), burn_in=1, n_step=2
    )


def corridor(seed, num_envs=LANES):
    return gymnasium_environment.GymnasiumEnvironment(memory.ENV_ID, num_envs, seed=seed)


def replay(capacity=500, **options):
    return sequence_replay.SequenceReplay(capacity, sequence_length=6, period=3, **options)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The directory of a run of R2D2 that recorded its experience."""
    path = tmp_path_factory.mktemp("recorded") / "run"
    online = experiment.Experiment(
        environment=corridor,
        agent=small_r2d2,
        replay=replay(),
        environment_steps=300,
        updates_per_step=0.01,
        initial_random_steps=0,
        batch_size=4,
        evaluation=evaluation_settings.Evaluation(interval=0, episodes=1),
        record=True,
    )
    with one_process.OneProcess(online, run_directory.RunDirectory(path), seed=1) as training:
        training.run()
    return str(path)


def built(stream):
    """The algorithm for what was recorded, and what flows through the stream."""
    offline_run = experiment.Experiment(agent=small_r2d2, replay=stream, train_steps=1)
    counters = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
    algorithm = offline_run.make_offline_algorithm(*counters)
    return sample_stream.Experience(
        algorithm.agent.collect_data_spec,
        1,
        algorithm.n_step,
        algorithm.gamma,
        algorithm.initial_priorities,
    )


def contents(stream, flow, address):
    """All sequences of a table, with their priorities, by what they hold."""
    found = {}
    for batch, info in stream.dataset(flow, address, 16, 10.0).take(120).as_numpy_iterator():
        for row in range(16):
            sequence = tf.nest.map_structure(lambda leaf: leaf[row], batch["experience"])  # noqa: B023
            key = b"".join(np.asarray(leaf).tobytes() for leaf in tf.nest.flatten(sequence))
            found[key] = (float(info.priority[row]), int(info.version[row]))
    return found


def test_sequences_are_those_that_an_actor_would_have_written(recorded):
    # Sampled uniformly, so that all of them are drawn; they have their priorities all the same.
    stream = recorded_sequences.RecordedSequences(
        recorded, sequences=replay(table=tables.uniform_table)
    )
    flow = built(stream)
    with server.ReplayServer(stream.tables(flow)) as replay_server:
        client = replay_server.client()
        steps = stream.fill(flow, client)
        assert stream.fill(flow, client) == 0  # Filled already.
        offline = contents(stream, flow, replay_server.address)
        size = replay_server.info().tables[stream.table_name].size
    (shard,) = shards.find(experience_recorder.find(recorded))
    paths = [field.path for field in window_layout.RowLayout(flow.data_spec, 1).fields]
    fields = shards.read(shard, paths)
    assert steps == np.count_nonzero(fields["step_type"] != ts.StepType.LAST)
    online_replay = replay(table=tables.uniform_table)
    online_flow = sample_stream.Experience(
        flow.data_spec, LANES, flow.n_step, flow.gamma, flow.initial_priorities
    )
    with server.ReplayServer(online_replay.tables(online_flow)) as replay_server:
        observer = online_replay.observer(online_flow, replay_server.client(), version=lambda: -1)
        for row in range(shard.num_rows):
            leaves = [fields[path][row] for path in paths]
            observer(tf.nest.pack_sequence_as(flow.data_spec, leaves))
        observer.close()
        online = contents(online_replay, online_flow, replay_server.address)
    assert len(offline) == size > 50
    assert offline == online
    assert len({priority for priority, _ in offline.values()}) > 10


def test_r2d2_trains_on_what_it_recorded_without_an_environment(recorded, tmp_path):
    found = []
    offline_run = experiment.Experiment(
        agent=small_r2d2,
        replay=recorded_sequences.RecordedSequences(recorded, sequences=replay()),
        train_steps=20,
        batch_size=8,
        reporting=run_settings.Reporting(seconds=1e-6),
    )
    with one_process.OneProcess(
        offline_run, run_directory.RunDirectory(tmp_path / "run"), seed=1, on_row=found.append
    ) as training:
        assert training.run() == one_process.COMPLETED
        assert (training.train_step, training.environment_step) == (20, 0)
    assert np.isfinite(found[-1]["loss"]) and found[-1]["loss"] > 0


def test_r2d2_mixes_recorded_and_new_sequences_and_gives_both_priorities(
    recorded, tmp_path, monkeypatch
):
    sent = collections.defaultdict(set)
    mutate = reverb.Client.mutate_priorities

    def spy(client, table, updates):
        name, _, _ = table.partition("@")  # The run's id follows.
        sent[name].update(updates)
        mutate(client, table, updates)

    monkeypatch.setattr(reverb.Client, "mutate_priorities", spy)
    old = recorded_sequences.RecordedSequences(
        recorded, sequences=replay(table_name="recorded", priority_offset=0.5)
    )
    mixture = mixed_replay.MixedReplay([replay(), old], [1, 3])
    assert mixture.prioritized(8) == [
        ("experience", slice(0, 2), 1e-3),
        ("recorded", slice(2, 8), 0.5),
    ]
    run = experiment.Experiment(
        environment=corridor,
        agent=small_r2d2,
        replay=mixture,
        environment_steps=200,
        learn_from=100,
        updates_per_step=0.1,
        batch_size=8,
        evaluation=evaluation_settings.Evaluation(interval=0, episodes=1),
    )
    with one_process.OneProcess(
        run, run_directory.RunDirectory(tmp_path / "run"), seed=1
    ) as training:
        training.run()
        assert training.train_step >= 10
    assert set(sent) == {"experience", "recorded"}
    assert sent["experience"] and sent["recorded"]
    assert not sent["experience"] & sent["recorded"]


def test_a_recording_without_states_is_refused_and_says_what_is_missing(recorded, tmp_path):
    stream = recorded_sequences.RecordedSequences(recorded, sequences=replay())
    flow = built(stream)
    bare = experience_recorder.read_data_spec(recorded)._replace(policy_info=())
    with experience_recorder.ExperienceRecorder(tmp_path, bare, 1):
        pass
    bare_stream = recorded_sequences.RecordedSequences(str(tmp_path), sequences=replay())
    with server.ReplayServer(bare_stream.tables(flow)) as replay_server:
        with pytest.raises(errors.SpecMismatchError, match="recorded is nothing") as error:
            bare_stream.fill(flow, replay_server.client())
    assert "policy_info/state" in str(error.value)
    assert "Experiment.record = True" in str(error.value)


def test_a_table_that_cannot_hold_the_recording_is_refused(recorded):
    stream = recorded_sequences.RecordedSequences(recorded, sequences=replay(capacity=10))
    flow = built(stream)
    with server.ReplayServer(stream.tables(flow)) as replay_server:
        with pytest.raises(errors.ConfigError, match="raise SequenceReplay.capacity to"):
            stream.fill(flow, replay_server.client())


def test_the_bindings_of_sequence_replay_are_those_of_recorded_sequences_too(recorded):
    gin.parse_config("SequenceReplay.sequence_length = 6\nSequenceReplay.period = 2")
    try:
        stream = recorded_sequences.RecordedSequences(recorded)
    finally:
        gin.clear_config()
    assert stream.num_transitions(built(stream), 10) == 20
