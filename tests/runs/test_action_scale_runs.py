"""Whole runs with float64 actions of a small range: replay, evaluation, recording and export."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import bc, ddpg, ppo, sac
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.streams import recorded_replay
from actor_learner.runs import one_process
from benchmarks import rescaled_action

LAYERS = {"actor_fc_layer_params": (8,), "critic_fc_layer_params": (8,)}


def pendulum(seed, num_envs=2):
    """Refuses actions of another dtype, and those beyond their bounds by the least bit."""
    return gymnasium_environment.GymnasiumEnvironment(
        "Pendulum-v1",
        num_envs,
        vectorization="sync",
        wrappers=[
            (rescaled_action.RescaledAction, {"low": -0.05, "high": 0.05, "dtype": "float64"})
        ],
        max_episode_steps=20,
        seed=seed,
    )


def run(directory, agent, **settings):
    rows = []
    with one_process.OneProcess(
        experiment.Experiment(
            pendulum,
            agent,
            evaluation=evaluation_settings.Evaluation(episodes=2),
            reporting=run_settings.Reporting(seconds=1e-6),
            **settings,
        ),
        run_directory.RunDirectory(directory),
        seed=1,
        on_row=rows.append,
    ) as training:
        assert training.run() == one_process.COMPLETED
    assert np.isfinite(rows[-1]["loss"])
    assert np.isfinite([row["eval_return"] for row in rows if "eval_return" in row]).all()
    policy = tf.saved_model.load(str(directory / "best" / "policy"))
    (action,) = policy.signatures["action"].structured_outputs.values()
    assert action.dtype == tf.float64


REPLAY = dict(environment_steps=200, initial_random_steps=100, batch_size=16, collect_steps=20)


def test_what_sac_collects_can_be_cloned(tmp_path):
    run(tmp_path / "sac", lambda world: sac.sac(world, **LAYERS), record=True, **REPLAY)
    run(
        tmp_path / "bc",
        lambda world: bc.bc(world, fc_layer_params=(8,)),
        replay=recorded_replay.RecordedReplay(str(tmp_path / "sac")),
        train_steps=20,
        batch_size=16,
    )


@pytest.mark.parametrize(
    "agent, settings",
    [
        # Much of its noise is beyond the bounds.
        (lambda world: ddpg.ddpg(world, noise_stddev=2.0, **LAYERS), REPLAY),
        (lambda world: ppo.ppo(world, fc_layer_params=(8,), epochs=1, initial_stddev=2.0),
         {"environment_steps": 600}),
    ],
    ids=["ddpg", "ppo"],
)  # fmt: skip
def test_an_agent_explores_up_to_its_bounds_and_not_beyond(tmp_path, agent, settings):
    run(tmp_path / "run", agent, **settings)
