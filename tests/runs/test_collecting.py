"""`Collecting` and the options of `AgentSpec` like it: how policies act while they collect."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from actor_learner import (
    AgentSpec,
    AgentWorld,
    Collecting,
    Evaluation,
    Experiment,
    RecordedReplay,
    dqn,
    ppo,
    r2d2,
    read_episodes,
)
from actor_learner import experiment as experiment_lib
from actor_learner.acting import actor
from actor_learner.environments import lanes, seeding, spread
from actor_learner.inference import protocol
from actor_learner.replay import postprocessors
from actor_learner.replay.recording import experience_recorder
from actor_learner.replay.server import server
from actor_learner.replay.streams import sequence_replay, unroll_queue, window_replay
from actor_learner.replay.writing import episode_rows
from actor_learner.run_directory import RunDirectory
from actor_learner.runs import acting_side
from actor_learner.runs.one_process import OneProcess
from actor_learner.support import errors
from tests import counting_world

# Explores with every step, and never learns anything.
RESTLESS = functools.partial(
    dqn, fc_layer_params=(8,), epsilon_start=1.0, epsilon_end=1.0, learning_rate=0.0
)


def experiment(agents=(), world=spread.Spread, **more):
    return Experiment(
        environment=functools.partial(AgentWorld, world, num_envs=2, agents=agents),
        evaluation=Evaluation(episodes=2, interval=0),
        **{
            "agent": RESTLESS,
            "initial_random_steps": 0,
            "updates_per_step": 0.1,
            "batch_size": 8,
            "environment_steps": 120,
            **more,
        },
    )


def share_of_greedy_actions(plan, address, agent):
    """Of the steps in a table, how many are what the policy would do greedily."""
    batch, _ = next(iter(plan.stream.dataset(plan.experience, address, 64, 20.0)))
    observed = batch.observation[:, 0]
    best = experiment_lib.greedy(agent.policy).action(ts.restart(observed, 64)).action
    return np.mean(best.numpy() == batch.action[:, 0].numpy())


@pytest.mark.parametrize("main, other", [(True, False), (False, True)])
def test_a_policy_acts_greedily_while_it_collects(tmp_path, main, other):
    others = AgentSpec(
        policy="others",
        agent=RESTLESS,
        batch_size=8,
        initial_random_steps=0,
        updates_per_step=0.1,
        deterministic_action=other,
    )
    made = experiment(
        [AgentSpec("agent_0"), others], collecting=Collecting(deterministic_action=main)
    )
    with OneProcess(made, RunDirectory(tmp_path), seed=0) as training:
        training.run()
        address = training._replay.server.address
        (further,) = training._further._all
        shares = [
            share_of_greedy_actions(part._plan, address, part._algorithm.agent)
            for part in (training, further)
        ]
    for share, greedy in zip(shares, (main, other)):
        assert (share == 1.0) == greedy
        assert share > 0.0


@pytest.mark.parametrize("agent", [ppo, r2d2])
def test_agents_that_learn_from_how_they_chose_cannot_collect_greedily(tmp_path, agent):
    made = experiment(agent=agent, collecting=Collecting(deterministic_action=True))
    env = made.make_environment(0)
    counter = tf.Variable(0, dtype=tf.int64)
    with pytest.raises(errors.ConfigError, match="learns from how its collect policy chose"):
        made.make_algorithm(env, counter, counter)


def plan_of(made, policy=None):
    """What an experiment comes to for `main`, or for a further policy; and the algorithm."""
    env = made.make_environment(0)
    counter = tf.Variable(0, dtype=tf.int64)
    if policy is not None:
        made = made.for_policy(env.spec_of(policy))
    algorithm = made.make_algorithm(env, counter, counter)
    return made.plan(algorithm, env.batch_size, policy=policy), algorithm


def rows_of_item(plan):
    (table,) = plan.stream.tables(plan.experience)
    record = table.info.signature["record"]
    return int(np.prod(record.shape[:2])), record.shape


REMEMBERING = functools.partial(
    r2d2, fc_layer_params=(8,), lstm_size=4, head_layer_params=(8,), n_step=2, burn_in=3
)


@pytest.mark.parametrize("bootstrap, length", [(None, 9), (5, 12)])
def test_windows_have_the_length_of_their_parts_and_advance_by_sample_steps(bootstrap, length):
    others = AgentSpec(
        policy="others", agent=REMEMBERING, sample_steps=4, bootstrap_steps=bootstrap
    )
    made = experiment([AgentSpec("agent_0"), others])
    plan, _ = plan_of(made, "others")
    assert rows_of_item(plan)[0] == length  # 3 of burn-in, 4, and by default n_step more.
    assert plan.stream.num_transitions(plan.experience, 1) == 4
    collecting = Collecting(sample_steps=4, bootstrap_steps=bootstrap, burn_in_steps=3)
    plan, _ = plan_of(experiment(agent=REMEMBERING, collecting=collecting, updates_per_step=None))
    assert rows_of_item(plan)[0] == length
    assert plan.stream.num_transitions(plan.experience, 1) == 4


def test_sample_steps_are_the_length_of_unrolls():
    more = dict(agent=ppo, initial_random_steps=None, updates_per_step=None, batch_size=64)
    plan, _ = plan_of(experiment(collecting=Collecting(sample_steps=5), **more))
    assert plan.group_steps == 5
    with pytest.raises(errors.ConfigError, match="bootstrap_steps 2, but an unroll begins with"):
        plan_of(experiment(collecting=Collecting(sample_steps=5, bootstrap_steps=2), **more))


@pytest.mark.parametrize(
    "agent, options, words",
    [
        (RESTLESS, dict(sample_steps=4), "as many steps as the agent's n_step"),
        (REMEMBERING, dict(sample_steps=4, burn_in_steps=2), "does not learn from the first 3"),
        (REMEMBERING, dict(bootstrap_steps=4), "sample_steps, the steps between two items"),
        (REMEMBERING, dict(sample_steps=0), "sample_steps must be a whole number, 1 or more"),
    ],
)
def test_windows_that_do_not_fit_are_refused(agent, options, words):
    with pytest.raises(errors.ConfigError, match=words):
        plan_of(experiment(agent=agent, collecting=Collecting(**options)))


def contents(client, table):
    """What the items of a table hold, each once."""
    size = client.server_info(10)[table].current_size
    found = set()
    for _ in range(100):
        for sample in client.sample(table, 10 * size, emit_timesteps=False):
            found.add(tuple(np.asarray(column).tobytes() for column in sample.data))
        if len(found) == size:
            return found
    raise AssertionError(f"{len(found)} different items of {size} in {table}")


@pytest.mark.parametrize(
    "agent, replay, world",
    [
        (RESTLESS, None, spread.Spread),
        (RESTLESS, window_replay.WindowReplay(), spread.Spread),
        (REMEMBERING, None, spread.Spread),
        (RESTLESS, None, counting_world.CountingTurnWorld),
    ],
)
def test_every_item_goes_to_all_tables(agent, replay, world):
    more = dict(initial_random_steps=None, updates_per_step=None, environment_steps=5_000)
    made = experiment(
        agent=agent,
        replay=replay,
        collecting=Collecting(tables=["mine", "watch", "spare"]),
        world=world,
        **more,
    )
    env = made.make_environment(0)
    counters = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
    algorithm = made.make_algorithm(env, *counters)
    plan = made.plan(
        algorithm, env.batch_size, "0123456789abcdef", lanes_apart=lanes.are_apart(env)
    )
    serving = server.ReplayServer(plan.tables())
    acting = acting_side.ActingSide(
        made,
        plan,
        algorithm,
        env,
        serving.client(),
        train_step=counters[0],
        environment_step=counters[1],
        seed=0,
    )
    try:
        for _ in range(4):
            acting.run()
        acting.close()
        names = ["mine@01234567", "watch@01234567", "spare@01234567"]
        assert plan.stream.table_name == names[0]
        assert sorted(serving.info().tables) == sorted(names)
        mine, watch, spare = (contents(serving.client(), name) for name in names)
        assert len(mine) > 1
        assert mine == watch == spare
        # Read as the learner reads its own.
        copied = plan.stream.with_table("watch")
        assert copied.table_name == names[1]
        next(iter(copied.dataset(plan.experience, serving.address, 4, 20.0)))
    finally:
        acting.close()
        serving.stop()


def test_unrolls_go_to_the_learner_s_queue_and_stay_in_the_others(tmp_path):
    others = AgentSpec(
        policy="others",
        agent=functools.partial(ppo, fc_layer_params=(8,), minibatch_size=16, epochs=1),
        replay=unroll_queue.UnrollQueue(4),
        tables=["theirs", "watch"],
        copy_size=3,
    )
    with OneProcess(
        experiment([AgentSpec("agent_0"), others]), RunDirectory(tmp_path), seed=0
    ) as training:
        training.run()
        (further,) = training._further._all
        tables = {
            name.split("@")[0]: table
            for name, table in training._replay.server.info().tables.items()
        }
        assert set(tables) == {"experience", "theirs", "watch"}
        assert further.train_step == further._acting.items_written > 3
        assert (tables["theirs"].size, tables["watch"].size) == (0, 3)


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(tables="watch"), "must be a list of names"),
        (dict(tables=["a", "a"]), "names one twice"),
        (dict(tables=["a@b"]), "without '@'"),
        (dict(tables=["a"], copy_size=3), "no table besides the learner's"),
        (dict(tables=["a", "b"], copy_size=0), "copy_size must be 1 or more"),
    ],
)
def test_names_of_tables_that_cannot_be_are_refused(options, words):
    with pytest.raises(errors.ConfigError, match=words):
        Collecting(**options)


def test_unrolls_that_stay_in_the_process_go_to_no_table(tmp_path):
    made = experiment(
        agent=ppo,
        replay=unroll_queue.UnrollQueue(4, in_process=True),
        initial_random_steps=None,
        updates_per_step=None,
        batch_size=64,
        collecting=Collecting(tables=["mine", "watch"]),
    )
    with pytest.raises(errors.ConfigError, match="watch.*UnrollQueue.in_process"):
        OneProcess(made, RunDirectory(tmp_path), seed=0)


def number_of_steps(episode):
    """A postprocessor of a user's."""
    return episode._replace(reward=np.full_like(episode.reward, len(episode.reward) - 1))


@pytest.mark.parametrize(
    "agent, postprocessing, field",
    [
        (RESTLESS, functools.partial(postprocessors.discounted_return, into="reward"), None),
        (RESTLESS, postprocessors.discounted_return, "return"),
        (REMEMBERING, functools.partial(postprocessors.gae, value="q_best"), "advantage"),
        (RESTLESS, number_of_steps, None),
    ],
)
def test_agents_learn_from_what_postprocessors_have_made(tmp_path, agent, postprocessing, field):
    world = functools.partial(spread.Spread, max_steps=5)
    others = AgentSpec(
        policy="others",
        agent=agent,
        replay=sequence_replay.SequenceReplay(sequence_length=6, period=2)
        if agent is REMEMBERING
        else None,
        batch_size=4,
        updates_per_step=0.1,
        postprocessors=[postprocessing],
    )
    made = experiment([AgentSpec("agent_0"), others], world=world)
    with OneProcess(made, RunDirectory(tmp_path), seed=0) as training:
        training.run()
        (further,) = training._further._all
        assert further.train_step > 5
        plan = further._plan
        batch, _ = next(
            iter(plan.stream.dataset(plan.experience, training._replay.server.address, 32, 20.0))
        )
        if field is not None:
            trajectory = batch["experience"].trajectory if isinstance(batch, dict) else batch
            assert np.count_nonzero(trajectory.policy_info[field]) > 10
        if postprocessing is number_of_steps:
            assert set(batch.reward[:, 0].numpy()) == {5.0}


@pytest.mark.parametrize("padded", [True, False])
def test_agents_learn_from_items_that_are_whole_episodes(tmp_path, padded):
    world = functools.partial(spread.Spread, max_steps=5)
    others = AgentSpec(
        policy="others",
        agent=REMEMBERING,
        replay=sequence_replay.SequenceReplay(sequence_length=8, period=2),
        batch_size=4,
        updates_per_step=0.1,
        send_full_trajectory=True,
        pad_trajectory=padded,
    )
    made = experiment([AgentSpec("agent_0"), others], world=world)
    with OneProcess(made, RunDirectory(tmp_path), seed=0) as training:
        training.run()
        (further,) = training._further._all
        assert further.train_step > 5
        client = training._replay.server.client()
        (sample,) = client.sample(further._plan.stream.table_name, 1, emit_timesteps=False)
        assert len(sample.data[0]) == (4 if padded else 3)  # Six rows, in cells of two.


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(send_full_trajectory=True), "items of LaneReplay are not stretches"),
        (dict(pad_trajectory=True), "without send_full_trajectory"),
    ],
)
def test_items_that_cannot_be_whole_episodes_are_refused(options, words):
    with pytest.raises(errors.ConfigError, match=words):
        plan_of(experiment(collecting=Collecting(**options)))


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(agent=ppo, initial_random_steps=None, updates_per_step=None, batch_size=64), "ppo.g"),
        (dict(postprocessors=[lambda _: None]), "returned a NoneType"),
        (dict(postprocessors=[lambda e: e._replace(reward=e.reward[:1])]), r"reward of shape \(1,"),
        (dict(postprocessors=[lambda e: e.nothing]), "failed with AttributeError on an example"),
        (dict(postprocessors=[3]), "without calling it"),
    ],
)
def test_what_cannot_wait_for_the_end_of_an_episode_is_refused(options, words):
    with pytest.raises(errors.ConfigError, match=words):
        collecting = Collecting(
            send_after_done=True, postprocessors=options.pop("postprocessors", ())
        )
        plan_of(experiment(collecting=collecting, **options))


def episodes_of(world, ticks):
    """`(return, length, terminated)` of every episode that ends, by PettingZoo's rules."""
    found = []
    for seed in seeding.lane_seeds(0, 2):
        for steps in counting_world.play(world(), seed, ticks).values():
            rewards = []
            for step in steps:
                rewards = [*([] if step.is_first else rewards), step.reward]
                if step.is_last:
                    found.append((sum(rewards), len(rewards), step.discount == 0.0))
    return sorted(found)


class Chooser:
    """An inference stream that chooses as the reference does."""

    def act(self, time_step):
        return protocol.Response(counting_world.choose(time_step.observation["observation"]))

    def reset(self):
        pass


def test_each_episode_gives_one_row():
    table = episode_rows.make_table("episodes", 1_000)
    serving = server.ReplayServer([table])
    env = AgentWorld(counting_world.CountingParallelWorld, num_envs=2, seed=0)
    client = serving.client()
    ticks = []
    rows = episode_rows.EpisodeRows(client, "episodes", env.batch_size, lambda: len(ticks))
    try:
        made = actor.Actor(
            env,
            Chooser(),
            tf.Variable(0, dtype=tf.int64),
            group_steps_per_run=60,
            observers=[lambda _: ticks.append(1), rows],
        )
        made.run()
        rows.close()
        read = read_episodes(client, "episodes")
        assert read_episodes(client, "episodes") == []  # Each is read once.
        with pytest.raises(errors.ReplayError, match="no table 'others'"):
            read_episodes(client, "others")
    finally:
        rows.close()
        serving.stop()
    expected = episodes_of(counting_world.CountingParallelWorld, 60)
    assert len(expected) > 30
    assert sorted((r["return"], r["length"], r["terminated"]) for r in read) == expected
    versions = [row["version"] for row in read]
    assert versions == sorted(versions) and len(set(versions)) > 10
    assert {row["lane"] for row in read} == set(range(6))


def test_rows_of_episodes_are_sent_beside_the_experience(tmp_path):
    world = functools.partial(spread.Spread, max_steps=5)
    others = AgentSpec(policy="others", agent=RESTLESS, batch_size=8, send_concise_info=True)
    made = experiment(
        [AgentSpec("agent_0"), others], world, collecting=Collecting(send_concise_info=True)
    )
    with OneProcess(made, RunDirectory(tmp_path), seed=0) as training:
        training.run()
        (further,) = training._further._all
        client = training._replay.server.client()
        names = training._plan.episode_table, further._plan.episode_table
        assert [name.split("@")[0] for name in names] == ["episodes", "others-episodes"]
        training._acting.close()
        further._closing.pop_all().close()
        of_main, of_others = (read_episodes(client, name) for name in names)
    steps = training.environment_step
    assert {row["length"] for row in [*of_main, *of_others]} == {5}
    assert len(of_main) == 2 * (steps // 2 // 5)  # Of two lanes, whole ones only.
    assert len(of_others) == 2 * len(of_main)


@pytest.mark.parametrize("option", ["deterministic_action", "send_concise_info"])
def test_runs_on_recorded_experience_do_not_collect(tmp_path, option):
    step = tf.TensorSpec([], tf.float32)
    kind = tf.TensorSpec([], tf.int32)
    spec = trajectory.Trajectory(kind, step, kind, (), kind, step, step)
    experience_recorder.ExperienceRecorder(tmp_path, spec, 1).close()
    with pytest.raises(errors.ConfigError, match=f"Collecting.{option} is set: for runs that coll"):
        Experiment(
            agent=RESTLESS,
            replay=RecordedReplay(str(tmp_path)),
            train_steps=10,
            collecting=Collecting(**{option: True}),
        )


def test_options_of_collecting_are_refused_where_nobody_reads_them():
    with pytest.raises(errors.ConfigError, match=r"bind that instead") as caught:
        AgentSpec(deterministic_action=True)
    assert "Collecting.deterministic_action" in str(caught.value)
    with pytest.raises(errors.ConfigError, match="frozen_policy.which says"):
        AgentSpec(policy="x", deterministic_action=True, frozen=lambda *_: None)
