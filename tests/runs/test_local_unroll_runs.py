"""Whole runs whose unrolls stay in the process: those that go through Reverb, step for step."""

import numpy as np
import pytest

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import impala, ppo
from actor_learner.environments.tensor import cartpole, environment
from actor_learner.replay.streams import unroll_queue
from actor_learner.runs import one_process
from actor_learner.support import errors

LANES, LENGTH = 8, 4

AGENTS = {
    "ppo": lambda world: ppo.ppo(
        world, fc_layer_params=(8,), lstm_size=4, share_torso=True, epochs=2, minibatch_size=16
    ),
    "impala": lambda world: impala.impala(world, fc_layer_params=(8,)),
}


def make_env(seed, num_envs=LANES):
    return environment.TensorEnvironment(cartpole.CartPoleDynamics(), num_envs, seed=seed)


def build(tmp_path, agent, rows, in_process, environment_steps=600, **settings):
    return one_process.OneProcess(
        experiment.Experiment(
            make_env,
            AGENTS[agent],
            replay=unroll_queue.UnrollQueue(LENGTH, in_process=in_process),
            environment_steps=environment_steps,
            evaluation=evaluation_settings.Evaluation(interval=0, episodes=2),
            reporting=run_settings.Reporting(seconds=1e-6),
            **settings,
        ),
        run_directory.RunDirectory(tmp_path),
        seed=1,
        on_row=rows.append,
    )


def train(tmp_path, agent, in_process, **settings):
    rows = []
    with build(tmp_path, agent, rows, in_process, **settings) as training:
        assert training.run() == one_process.COMPLETED
        if in_process:
            assert (
                training._replay.server.info().tables[training._plan.stream.table_name].inserts == 0
            )
    return rows


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_a_run_in_the_process_is_the_run_through_reverb(tmp_path, agent):
    """The same losses and returns, the same counts, and every unroll used once."""
    local = train(tmp_path / "local", agent, True)
    through_reverb = train(tmp_path / "reverb", agent, False)
    counted = ("environment_steps", "train_steps", "replay_size", "samples_per_insert", "episodes")
    assert [[row[name] for name in counted] for row in local] == [
        [row[name] for name in counted] for row in through_reverb
    ]
    for name in ("loss", "return"):
        found, expected = (
            np.array([row.get(name) or 0.0 for row in rows]) for rows in (local, through_reverb)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    assert local[-1]["replay_size"] == 0 and local[-1]["samples_per_insert"] == 1.0


def test_a_resumed_run_goes_on_with_exact_counts(tmp_path):
    first = train(tmp_path, "ppo", True, environment_steps=300)[-1]
    second = train(tmp_path, "ppo", True, environment_steps=600)[-1]
    assert 300 <= first["environment_steps"] < 300 + LANES * LENGTH
    assert 600 <= second["environment_steps"] < 600 + LANES * LENGTH
    boundaries = (second["train_steps"] * LANES * LENGTH) - second["environment_steps"]
    assert 0 <= boundaries <= second["episodes"]


def test_contents_that_cannot_be_saved_are_refused(tmp_path):
    with pytest.raises(errors.ConfigError, match="leave out one of the two"):
        build(tmp_path, "ppo", [], True, checkpoints=run_settings.Checkpoints(save_replay=True))


def test_collecting_in_a_thread_takes_unrolls_from_the_process(tmp_path):
    rows = train(tmp_path, "impala", True, overlap=True)
    assert rows[-1]["replay_size"] == 0 and rows[-1]["samples_per_insert"] == 1.0
    assert max(row["version_lag"] for row in rows) <= 2.0
