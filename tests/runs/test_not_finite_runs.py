"""Runs that skip what is not finite, and such whose environment is refused for it.

Those that stop are in `test_not_finite_table`.
"""

import functools

import gin
import numpy as np
import pytest

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import dqn, ppo
from actor_learner.replay.streams import lane_replay, unroll_queue
from actor_learner.runs import one_process
from actor_learner.support import errors
from tests.runs import faults, faulty_environment

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
        "reporting": run_settings.Reporting(seconds=1e-6),
        **changes,
    }
    rows = []
    run = run_directory.RunDirectory(directory)
    with one_process.OneProcess(
        experiment.Experiment(**settings), run, seed=1, on_row=rows.append
    ) as training:
        started_at = training.train_step
        return training.run(), rows, started_at


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
        faults.check_saved(run_directory.RunDirectory(tmp_path))
        # What was skipped before is still counted when the run is resumed.
        _, rows, _ = train(tmp_path, name, None, environment_steps=352)
        assert rows[-1]["skipped_steps"] >= last["skipped_steps"]
    finally:
        gin.clear_config()


def test_a_run_whose_environment_is_refused_saves_what_it_has_learned(tmp_path):
    with pytest.raises(errors.NotFiniteError, match="FaultyEnvironment"):
        train(tmp_path, "dqn", np.nan, check_finite=None)
    faults.check_saved(run_directory.RunDirectory(tmp_path))
    status, _, started_at = train(tmp_path, "dqn", None)
    assert status == one_process.COMPLETED and started_at > 0
