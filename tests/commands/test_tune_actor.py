"""`actor-learner tune-actor` on a fast environment and on a slow one, with real turns."""

import functools

import gymnasium
import numpy as np
import pytest

import actor_learner
from actor_learner import cli
from actor_learner.commands import tune_actor


class Clock:
    """Seconds that pass by what is done, not by how busy the machine is: 10 µs per look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-5
        return self.now


CLOCK = Clock()


class Slow(gymnasium.Env):
    """Takes two milliseconds per step, in each lane."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        CLOCK.now += 2e-3
        return np.zeros(4, np.float32), 1.0, False, False, {}


@pytest.fixture
def slow():
    gymnasium.register("Slow-v0", entry_point=Slow, max_episode_steps=50)
    yield "Slow-v0"
    del gymnasium.registry["Slow-v0"]


def tuned(environment, agent, tmp_path, lanes=(1, 8), **more):
    experiment = actor_learner.Experiment(
        environment=functools.partial(actor_learner.GymnasiumEnvironment, environment),
        agent=agent,
        environment_steps=100_000,
        **more,
    )
    lines = []
    advice = tune_actor.run(experiment, lanes, 0.05, str(tmp_path), lines.append, clock=CLOCK)
    return advice, "\n".join(lines)


def test_fast_and_slow_environments_lead_to_different_advice(slow, tmp_path, monkeypatch):
    monkeypatch.setattr(tune_actor.os, "cpu_count", lambda: 8)
    dqn = functools.partial(actor_learner.dqn, fc_layer_params=(8,))
    fast, said = tuned("CartPole-v1", dqn, tmp_path, initial_random_steps=1_000)
    assert fast.lanes == 8
    assert "num_envs = 8" in said and "steps/s" in said and "inference: lite" in said
    few, said = tuned(slow, dqn, tmp_path, initial_random_steps=1_000)
    assert (few.lanes, few.actors) == (1, 7)
    assert "up --actors=7" in said


def test_a_queue_that_nobody_learns_from_does_not_fill_up(tmp_path):
    ppo = functools.partial(actor_learner.ppo, fc_layer_params=(8,))
    advice, said = tuned("CartPole-v1", ppo, tmp_path, lanes=(4,))
    assert advice.lanes == 4 and "only 4 lanes were measured" in said


@pytest.mark.parametrize(
    "flags, words",
    [
        ([], "tune-actor needs --gin_file=FILE"),
        (["--gin_file=dqn_cartpole", "--lanes=0,1"], "--lanes=0,1: each must be at least 1"),
        (["--gin_file=dqn_cartpole", "--lanes=many"], "--lanes=many: write numbers"),
        (["--gin_file=dqn_cartpole", "--seconds=0"], "--seconds must be above 0"),
        (["--gin_file=dqn_cartpol"], "did you mean 'dqn_cartpole"),
    ],
)
def test_what_is_wrong_is_said(flags, words, capsys):
    assert cli.main(["tune-actor", *flags]) == 2
    assert words in capsys.readouterr().err


def test_bindings_name_what_this_version_has():
    from actor_learner.runs import actor_advice

    advice = actor_advice.Advice(16, 4, actor_advice.REMOTE, 2, [])
    plain = tune_actor.bindings(object(), "GymnasiumEnvironment", advice)
    assert plain == ["GymnasiumEnvironment.num_envs = 16", "actor-learner up --actors=2"]
