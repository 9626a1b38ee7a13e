"""Several policies in one world: shared, separate and frozen ones, each with what is its own."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import actor_learner
from actor_learner import AgentSpec, AgentWorld, Evaluation, Experiment, dqn, ppo
from actor_learner.environments import spread
from actor_learner.replay.streams import unroll_queue
from actor_learner.run_directory import RunDirectory
from actor_learner.runs import frozen_policy
from actor_learner.runs.one_process import OneProcess
from actor_learner.support import errors
from tests import counting_world

SMALL = dict(fc_layer_params=(8,))


def experiment(agents, world=spread.Spread, **more):
    return Experiment(
        environment=functools.partial(AgentWorld, world, num_envs=2, agents=agents),
        agent=functools.partial(dqn, **SMALL),
        initial_random_steps=24,
        updates_per_step=0.25,
        batch_size=8,
        evaluation=Evaluation(episodes=2, interval=0),
        collect_steps=20,
        **{"environment_steps": 120, **more},
    )


SMALL_DQN = functools.partial(dqn, **SMALL)


def two_policies(agent=SMALL_DQN, **more):
    return [
        AgentSpec("agent_0"),
        AgentSpec(policy="others", agent=agent, **more),
    ]


def rows_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def run(made, run_dir, seed=0):
    with OneProcess(made, RunDirectory(run_dir), seed=seed) as training:
        training.run()
        further = {policy.name: policy for policy in training._further._all}
        return {
            "steps": {name: each.environment_step for name, each in further.items()},
            "train": {name: each.train_step for name, each in further.items()},
            "restored": training.restored_from,
            "weights": {
                name: [v.numpy() for v in each._algorithm.agent.collect_policy.variables()]
                for name, each in further.items()
            },
            "tables": set(training._replay.server.info().tables),
        }


def test_each_policy_has_tables_versions_and_checkpoints_of_its_own(tmp_path):
    agents = two_policies(updates_per_step=0.5, batch_size=4, initial_random_steps=30)
    first = run(experiment(agents), tmp_path)
    # Two of three agents belong to it: twice the steps of the main policy.
    assert first["steps"] == {"others": 240}
    assert first["train"] == {"others": (240 - 30) // 2}
    names = {name.split("@")[0] for name in first["tables"]}
    assert names == {"experience", "others-experience"}
    checkpoints = tmp_path / "agents" / "others" / "train" / "checkpoints"
    assert tf.train.latest_checkpoint(str(checkpoints)).endswith(str(first["train"]["others"]))
    assert rows_of(tmp_path / "agents" / "others")[-1]["train_steps"] == first["train"]["others"]
    # And goes on from there.
    again = run(experiment(agents, environment_steps=180), tmp_path)
    assert again["restored"] is not None
    assert again["steps"] == {"others": 360}
    assert again["train"]["others"] > first["train"]["others"]


def test_on_policy_learners_learn_beside_one_that_replays(tmp_path):
    agents = two_policies(
        functools.partial(ppo, minibatch_size=16, epochs=1, **SMALL),
        replay=unroll_queue.UnrollQueue(4),
    )
    found = run(experiment(agents), tmp_path)
    assert found["steps"] == {"others": 240}
    assert found["train"] == {"others": 240 // (4 * 4)}


def test_policies_that_take_turns_learn_apart(tmp_path):
    agents = [
        AgentSpec("walker_.*"),
        AgentSpec(
            policy="runners",
            agent=functools.partial(dqn, **SMALL),
            batch_size=4,
            initial_random_steps=5,
        ),
    ]
    found = run(experiment(agents, counting_world.CountingTurnWorld), tmp_path)
    assert found["train"]["runners"] == found["steps"]["runners"] - 5 > 0


def test_a_policy_of_an_earlier_run_plays_on_frozen(tmp_path):
    actor_learner.train(experiment([]), tmp_path / "earlier", seed=0)
    frozen = functools.partial(frozen_policy.frozen_policy, run=str(tmp_path / "earlier"))
    agents = [AgentSpec("agent_0"), AgentSpec(policy="past", frozen=frozen)]
    env = AgentWorld(spread.Spread, 2, agents=agents, seed=1)
    time_step = env.reset()
    assert env.batch_size == 2
    past = actor_learner.load_policy(tmp_path / "earlier")
    for _ in range(5):
        observed = env.groups["past"].time_step.observation
        before = observed[:, :2].copy()
        expected = spread._MOVES[past.act(observed)] * 0.15
        time_step = env.step(np.zeros(2, np.int64))
        moved = env.groups["past"].time_step.observation[:, :2] - before
        inside = np.abs(before + expected) < 1.0
        np.testing.assert_allclose(moved[inside], expected[inside], atol=1e-6)
    assert time_step.step_type.tolist() == [1, 1]
    found = run(experiment(agents), tmp_path / "now")
    assert found["steps"] == {}


def test_random_policies_choose_legal_actions():
    agents = [
        AgentSpec("walker_0"),
        AgentSpec(policy="noise", frozen=frozen_policy.random_policy),
    ]
    # The world raises when an action is illegal.
    env = AgentWorld(counting_world.CountingParallelWorld, 3, agents=agents, seed=0)
    time_step = env.reset()
    for _ in range(50):
        observed = time_step.observation["observation"]
        time_step = env.step(counting_world.choose(observed))


def test_nobody_acts_for_a_policy(tmp_path):
    env = AgentWorld(spread.Spread, 1, agents=[AgentSpec("agent_0"), AgentSpec(policy="x")])
    with pytest.raises(errors.ConfigError, match=r"nobody acts for the policies \['x'\]"):
        env.reset()


def test_collecting_cannot_overlap_with_several_learners(tmp_path):
    with pytest.raises(errors.ConfigError, match="overlap"):
        run(experiment(two_policies(), overlap=True), tmp_path)


def test_unrolls_of_agents_that_take_turns_are_learned_from_in_whole_batches(tmp_path):
    made = Experiment(
        environment=functools.partial(AgentWorld, counting_world.CountingTurnWorld, num_envs=2),
        agent=functools.partial(ppo, minibatch_size=16, epochs=1, **SMALL),
        replay=unroll_queue.UnrollQueue(4),
        environment_steps=120,
        evaluation=Evaluation(episodes=2, interval=0),
    )
    with OneProcess(made, RunDirectory(tmp_path), seed=0) as training:
        training.run()
        written = training._acting._writer.items_written
        # Six slots: a batch is six unrolls, whichever slots they are of.
        assert training.train_step == training._acting.turns == written // 6 > 2


def test_exported_policies_of_a_run_act_for_the_others(tmp_path):
    made = experiment(two_policies(), environment_steps=60)
    with OneProcess(made, RunDirectory(tmp_path), seed=0) as training:
        training.run()
        training.export_policies()
    env = AgentWorld(spread.Spread, 2, agents=two_policies(), seed=1)
    with pytest.raises(errors.ConfigError, match="are trained by learners of their own"):
        env.reset()
    frozen_policy.furnish(env, RunDirectory(tmp_path))
    env.reset()
    observed = env.groups["others"].time_step.observation
    env.step(np.zeros(2, np.int64))
    exported = tmp_path / "agents" / "others" / "policies" / "greedy_policy"
    moves = spread._MOVES[actor_learner.load_policy(exported).act(observed)] * 0.15
    expected = np.clip(observed[:, :2] + moves, -1.0, 1.0)
    np.testing.assert_allclose(
        env.groups["others"].time_step.observation[:, :2], expected, atol=1e-6
    )
