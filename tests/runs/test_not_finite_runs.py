"""Runs that meet a reward which is not finite, in one process and as jobs: they stop, or skip."""

import functools
import uuid

import gin
import numpy as np
import pytest
import tensorflow as tf

from actor_learner import evaluation_settings, experiment, run_directory
from actor_learner.agents import dqn, ppo
from actor_learner.jobs import actor, learner, replay
from actor_learner.replay.streams import lane_replay, unroll_queue
from actor_learner.runs import one_process
from actor_learner.support import errors
from tests.jobs import jobs_in_process
from tests.runs import faulty_environment

pytestmark = pytest.mark.timeout(400)

UNROLL = 16


def small_dqn(world):
    return dqn.dqn(world, fc_layer_params=(4,), epsilon_decay_steps=100)


def small_ppo(world):
    return ppo.ppo(world, fc_layer_params=(4,), epochs=2, minibatch_size=8)


AGENTS = {
    "dqn": dict(
        agent=small_dqn,
        initial_random_steps=32,
        updates_per_step=0.5,
        collect_steps=16,
        batch_size=16,
        # Of items with many rows, those with the latest steps may not be drawn in so short a run.
        replay=lane_replay.LaneReplay(rows_per_item=1),
    ),
    "ppo": dict(agent=small_ppo, replay=unroll_queue.UnrollQueue(UNROLL)),
}


def train(directory, name, fault, check_finite=False, **changes):
    """Trains in one process; returns the status, and the rows of metrics."""
    settings = {
        **AGENTS[name],
        "environment": functools.partial(
            faulty_environment.FaultyEnvironment, fault=fault, check_finite=check_finite
        ),
        "environment_steps": 320,
        "evaluation": evaluation_settings.Evaluation(interval=0, episodes=1),
        "report_seconds": 1e-6,
        **changes,
    }
    rows = []
    run = run_directory.RunDirectory(directory)
    with one_process.OneProcess(
        experiment.Experiment(**settings), run, seed=1, on_row=rows.append
    ) as training:
        started_at = training.train_step
        return training.run(), rows, started_at


def assert_checkpoints_are_finite(directory):
    found = list((directory / "train" / "checkpoints").glob("ckpt-*.index"))
    assert found
    for path in found:
        reader = tf.train.load_checkpoint(str(path.with_suffix("")))
        for name, dtype in reader.get_variable_to_dtype_map().items():
            if dtype.is_floating:
                assert np.isfinite(reader.get_tensor(name)).all(), name


@pytest.mark.parametrize("name, fault", [("dqn", np.nan), ("ppo", np.inf)])
def test_a_run_stops_and_goes_on_from_a_good_state(tmp_path, name, fault):
    with pytest.raises(errors.NotFiniteError, match=r"reward: 0 to 1, \d+ of"):
        train(tmp_path, name, fault)
    assert_checkpoints_are_finite(tmp_path)
    status, rows, started_at = train(tmp_path, name, None, environment_steps=480)
    assert status == one_process.COMPLETED and started_at > 0
    assert rows[-1]["train_steps"] > started_at
    assert "skipped_steps" not in rows[-1]  # Nothing is skipped unless asked for.
    assert_checkpoints_are_finite(tmp_path)


@pytest.mark.parametrize("name, fault", [("dqn", np.inf), ("ppo", np.nan)])
def test_a_run_that_skips_trains_to_its_end_and_counts(tmp_path, name, fault):
    gin.bind_parameter("Learner.when_not_finite", "skip")
    try:
        status, rows, _ = train(tmp_path, name, fault)
        assert status == one_process.COMPLETED
        last = rows[-1]
        if name == "ppo":  # Each step is learned from once.
            assert last["skipped_steps"] == 1
        assert last["skipped_steps"] > 0 and np.isfinite(last["loss"])
        assert_checkpoints_are_finite(tmp_path)
        # What was skipped before is still counted when the run is resumed.
        _, rows, _ = train(tmp_path, name, None, environment_steps=352)
        assert rows[-1]["skipped_steps"] >= last["skipped_steps"]
    finally:
        gin.clear_config()


def test_a_run_whose_environment_is_refused_saves_what_it_has_learned(tmp_path):
    with pytest.raises(errors.NotFiniteError, match="FaultyEnvironment"):
        train(tmp_path, "dqn", np.nan, check_finite=None)
    assert_checkpoints_are_finite(tmp_path)
    status, _, started_at = train(tmp_path, "dqn", None)
    assert status == one_process.COMPLETED and started_at > 0


def gin_file(tmp_path, fault):
    path = tmp_path / f"faulty_{fault}.gin"
    path.write_text(
        "import tests.runs.faulty_environment\n"
        "include 'dqn_cartpole.gin'\n"
        "Experiment.environment = @FaultyEnvironment\n"
        f"FaultyEnvironment.fault = {fault}\n"
        "Experiment.environment_steps = 100_000\n"
        "Experiment.initial_random_steps = 32\n"
        "Experiment.collect_steps = 16\n"
        "dqn.fc_layer_params = (4,)\n"
        "LaneReplay.rows_per_item = 1\n"
    )
    return str(path)


def test_a_learner_job_stops_and_goes_on_from_a_good_state(tmp_path):
    run_dir = run_directory.RunDirectory(tmp_path / "mine")
    run_dir.path.mkdir()

    def work(fault, until):
        space = uuid.uuid4().hex
        with jobs_in_process.configured(gin_file(tmp_path, fault)) as source:
            serving = jobs_in_process.configure(replay.ReplayJob(), "replay", space)
            trained = jobs_in_process.configure(
                learner.LearnerJob(), "learner", space, run_dir=run_dir, source=source
            )
            trained.poll()  # It publishes the policy that an actor waits for.
            acting = jobs_in_process.configure(actor.ActorJob(), "actor", space)
            try:
                began = trained.status()["steps"]
                jobs_in_process.poll_until(lambda: until(began, trained), "done", acting, trained)
                return began, trained.status()["steps"]
            finally:
                trained.close()
                acting.close()
                serving.close()

    with pytest.raises(errors.NotFiniteError, match="reward"):
        work("1e39", lambda began, trained: False)  # Infinite as float32.
    assert_checkpoints_are_finite(run_dir.path)
    began, ended = work("None", lambda began, trained: trained.status()["steps"] > began + 10)
    assert 0 < began < ended
    assert_checkpoints_are_finite(run_dir.path)
