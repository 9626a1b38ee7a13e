"""Algorithms that learn from each step once, in one process: every unroll, and how old they are."""

import numpy as np
import pytest

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import impala, ppo
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.streams import unroll_queue
from actor_learner.runs import one_process

LANES, LENGTH = 4, 8

AGENTS = {
    "ppo": lambda world: ppo.ppo(world, fc_layer_params=(8,), epochs=1, minibatch_size=16),
    "impala": lambda world: impala.impala(world, fc_layer_params=(8,)),
}


class CountedCartPole:
    """Makes environments that count the batched steps taken in the first of them."""

    def __init__(self):
        self.group_steps = None

    def __call__(self, seed, num_envs=LANES):
        env = gymnasium_environment.GymnasiumEnvironment(
            "CartPole-v1", num_envs, vectorization="sync", seed=seed
        )
        if self.group_steps is None:
            self.group_steps = 0
            step = env._step

            def counted(action):
                self.group_steps += 1
                return step(action)

            env._step = counted
        return env


def train(tmp_path, agent, **settings):
    rows, environment = [], CountedCartPole()
    with one_process.OneProcess(
        experiment.Experiment(
            environment,
            AGENTS[agent],
            replay=unroll_queue.UnrollQueue(LENGTH),
            environment_steps=1_500,
            evaluation=evaluation_settings.Evaluation(interval=0, episodes=2),
            reporting=run_settings.Reporting(seconds=1e-6),
            **settings,
        ),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
        on_row=rows.append,
    ) as training:
        assert training.run() == one_process.COMPLETED
        assert training.environment_step >= 1_500
        # Each unroll of all lanes was learned from, once.
        assert environment.group_steps == training.train_step * LENGTH
    assert rows[-1]["replay_size"] == 0 and rows[-1]["samples_per_insert"] == 1.0
    assert all(np.isfinite(row["loss"]) for row in rows[1:])
    return rows


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_by_turns_every_unroll_is_of_the_newest_policy(tmp_path, agent):
    rows = train(tmp_path, agent)
    assert {row["version_lag"] for row in rows} == {0.0}


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_overlapped_no_unroll_is_more_than_two_train_steps_old(tmp_path, agent):
    rows = train(tmp_path, agent, overlap=True)
    lags = [row["version_lag"] for row in rows]
    assert max(lags[1:]) >= 1.0  # The first is collected before anything is learned.
    assert max(lags) <= 2.0
