"""What each agent met, did and got, through Actor, tables and batches, against a reference."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import AgentSpec
from actor_learner.acting import actor as actor_lib
from actor_learner.acting import turn_rows
from actor_learner.environments import agent_world, lanes, seeding
from actor_learner.inference import protocol
from actor_learner.replay.server import server
from actor_learner.replay.streams import (
    apart,
    lane_replay,
    sample_stream,
    sequence_replay,
    unroll_queue,
)
from actor_learner.replay.writing import whole_episodes
from tests import counting_world

LANES, SEED, TICKS = 4, 3, 60
WORLDS = [counting_world.CountingParallelWorld, counting_world.CountingTurnWorld]


class Chooser:
    """An inference stream that chooses as the reference does."""

    def act(self, time_step):
        return protocol.Response(counting_world.choose(time_step.observation["observation"]))

    def reset(self):
        pass


def reference(world, agents=counting_world.AGENTS):
    """The steps of each slot, in the order of slots."""
    slots = []
    for seed in seeding.lane_seeds(SEED, LANES):
        steps = counting_world.play(world(), seed, 2 * TICKS)  # More than the actor takes.
        slots += [steps[agent] for agent in agents]
    return slots


def data_spec(env):
    step = tensor_spec.from_spec(env.time_step_spec())
    return trajectory_lib.Trajectory(
        step.step_type,
        step.observation,
        tensor_spec.from_spec(env.action_spec()),
        (),
        step.step_type,
        step.reward,
        step.discount,
    )


def collect(env, stream, *, n_step=1, version=None, **episodes):
    """Acts into a server of its own; returns it, and what flows."""
    num_lanes = env.batch_size
    takes_turns = lanes.are_apart(env)
    if takes_turns or episodes:
        stream = apart.Apart(stream, num_lanes, takes_turns=takes_turns, **episodes)
    spec = whole_episodes.spec_after(data_spec(env), episodes.get("postprocessors", ()))
    experience = sample_stream.Experience(spec, num_lanes, n_step, 0.9)
    replay = server.ReplayServer(stream.tables(experience))
    writer = stream.observer(experience, replay.client(), version)
    observer = writer
    if lanes.are_apart(env):
        observer = turn_rows.TurnRows(lambda: env.present, writer.add)
    transitions = getattr(observer, "observes_transitions", False)
    actor = actor_lib.Actor(
        env,
        Chooser(),
        tf.Variable(0, dtype=tf.int64),
        group_steps_per_run=TICKS,
        observers=[] if transitions else [observer],
        transition_observers=[observer] if transitions else [],
    )
    actor.run()
    return replay, stream, experience, writer, actor


def step_of(row, column, action):
    observation = row.observation
    return counting_world.Step(
        tuple(observation["observation"][column].tolist()),
        tuple(observation["action_mask"][column].tolist()),
        int(action),
        float(row.reward[column]),
        float(row.discount[column]),
        tuple(observation["observation"][column + 1].tolist()),
        bool(row.step_type[column] == 0),
        bool(row.next_step_type[column] == 2),
    )


def at(nest, index):
    return tf.nest.map_structure(lambda leaf: leaf[index], nest)


def make(world, **more):
    env = agent_world.AgentWorld(world, LANES, seed=SEED, **more)
    return env


@pytest.mark.parametrize("world", WORLDS)
def test_every_transition_in_the_table_is_a_step_of_one_agent(world):
    env = make(world)
    replay, stream, experience, writer, _ = collect(
        env, lane_replay.LaneReplay(capacity=10_000, rows_per_item=4)
    )
    try:
        writer.close()
        found = {}
        batches = iter(stream.dataset(experience, replay.address, 64, 20.0))
        for _ in range(100):
            batch, _ = next(batches)
            batch = tf.nest.map_structure(lambda leaf: leaf.numpy(), batch)
            for i in range(64):
                row = at(batch, i)
                step = step_of(row, 0, row.action[0])
                found[step.observation] = step
        del batches
    finally:
        replay.stop()
    for slot in reference(world):
        stored = [step for step in slot if step.observation in found]
        assert stored == slot[: len(stored)]  # All of them, up to where the actor stopped.
        for step in stored:
            assert found.pop(step.observation) == step
        assert len(stored) > 5
    assert not found


@pytest.mark.parametrize("world", WORLDS)
def test_unrolls_hold_each_slot_s_steps_in_order(world):
    env = make(world)
    expected = reference(world)
    queue = unroll_queue.UnrollQueue(4, max_queued_batches=100, max_in_flight_items=100)
    replay, stream, experience, writer, _ = collect(env, queue)
    rows = {}
    try:
        writer.flush()
        num_slots = env.batch_size
        num_items = replay.info().tables[stream.table_name].size
        per_item = 1 if lanes.are_apart(env) else num_slots
        batches = iter(stream.dataset(experience, replay.address, 0, 20.0))
        for _ in range(num_items * per_item // num_slots):
            unroll, _ = next(batches)
            steps = tf.nest.map_structure(lambda leaf: leaf.numpy(), unroll.trajectory)
            for i in range(num_slots):
                row = at(steps, i)
                for t in range(4):
                    if row.step_type[t] == 2:
                        continue  # Nobody's step.
                    step = step_of(row, t, row.action[t])
                    lane, _, _, agent = step.observation
                    rows.setdefault((lane, agent), []).append(step)
        del batches
    finally:
        replay.stop()
    by_slot = {(slot[0].observation[0], slot[0].observation[3]): slot for slot in expected if slot}
    assert set(rows) == set(by_slot)
    for key, steps in rows.items():
        length = min(len(steps), len(by_slot[key]))
        assert length >= 4
        assert steps[:length] == by_slot[key][:length]


def test_sequences_begin_with_a_step_of_somebody():
    """And not with the rows of slots whose agents are out."""
    env = make(counting_world.CountingParallelWorld)
    expected = {
        step.observation: step
        for slot in reference(counting_world.CountingParallelWorld)
        for step in slot
    }
    stream = sequence_replay.SequenceReplay(sequence_length=4, period=2)
    replay, stream, experience, writer, _ = collect(env, stream)
    try:
        writer.flush()
        dataset = stream.dataset(experience, replay.address, 16, 20.0)
        for sample, _ in dataset.take(20):
            sequence = sample["experience"] if isinstance(sample, dict) else sample
            steps = tf.nest.map_structure(lambda leaf: leaf.numpy(), sequence.trajectory)
            assert (steps.step_type[:, 0] != 2).all()
            for row in steps.observation["observation"][:, 0]:
                assert tuple(row.tolist()) in expected
    finally:
        replay.stop()


def number_the_steps(episode):
    """A postprocessor of a user's: how many steps there are, and which of them each is."""
    length = len(episode.step_type)
    info = {"of": np.full(length, length - 1, np.int64), "step": np.arange(length, dtype=np.int16)}
    return episode._replace(policy_info=info, reward=episode.reward + 0.5)


@pytest.mark.parametrize("world", WORLDS)
def test_whole_episodes_are_sent_with_what_postprocessors_make_of_them(world):
    env = make(world)
    ticks, step = [], env._lanes.step

    def count(actions):
        ticks.append(1)
        step(actions)

    env._lanes.step = count
    replay, stream, experience, writer, _ = collect(
        env,
        lane_replay.LaneReplay(capacity=10_000, rows_per_item=4),
        version=lambda: len(ticks),
        after_done=True,
        postprocessors=[number_the_steps],
    )
    found = {}
    versions = {}
    try:
        writer.close()
        batches = iter(stream.dataset(experience, replay.address, 64, 20.0))
        for _ in range(100):
            batch, info = next(batches)
            batch = tf.nest.map_structure(lambda leaf: leaf.numpy(), batch)
            for i in range(64):
                row = at(batch, i)
                step = step_of(row, 0, row.action[0])
                step = step._replace(reward=step.reward - 0.5)
                assert row.policy_info["step"].dtype == np.int16
                found[step.observation] = (
                    step,
                    int(row.policy_info["step"][0]),
                    int(row.policy_info["of"][0]),
                )
                versions[step.observation] = int(info.version[i])
        del batches
    finally:
        replay.stop()
    for slot in reference(world):
        whole, steps = 0, []
        for step in slot:
            steps = [step] if step.is_first else [*steps, step]
            if not step.is_last:
                continue
            stored = [found.pop(each.observation, None) for each in steps]
            if stored[0] is None:  # The actor stopped before it had ended.
                assert stored == [None] * len(steps)
                continue
            assert stored == [(each, i, len(steps)) for i, each in enumerate(steps)]
            acted = [versions[each.observation] for each in steps]
            if world is counting_world.CountingParallelWorld:  # Tick by tick, and not when sent.
                assert acted == list(range(acted[0], acted[0] + len(steps)))
            assert acted == sorted(acted)
            whole += 1
        assert whole > 1
    assert not found


def episodes(world, ticks):
    """The observations of each whole episode of each agent, the final one included."""
    found = []
    for seed in seeding.lane_seeds(SEED, LANES):
        for steps in counting_world.play(world(), seed, ticks).values():
            for step in steps:
                if step.is_first:
                    rows = []
                rows.append(step.observation)
                if step.is_last:
                    found.append([*rows, step.next_observation])
    return found


@pytest.mark.parametrize("window", [(0, 2, 1), (1, 3, 1), (1, 2, 2)])
def test_windows_are_consecutive_steps_that_advance_by_sample_steps(window):
    world, (burn_in, sample, bootstrap) = counting_world.CountingParallelWorld, window
    length = burn_in + sample + bootstrap

    def windows(ticks):
        found = set()
        for rows in episodes(world, ticks):
            num_starts = 1 + max(0, -(-(len(rows) - length) // sample))
            found |= {tuple(rows[i * sample :][:length]) for i in range(num_starts)}
        return found

    env = make(world)
    replay, stream, experience, writer, _ = collect(
        env, sequence_replay.SequenceReplay().with_window(burn_in, sample, bootstrap)
    )
    found = set()
    try:
        writer.flush()
        num_items = replay.info().tables[stream.table_name].size
        keys = set()
        for sample_, info in stream.dataset(experience, replay.address, 32, 20.0):
            sequence = tf.nest.map_structure(lambda leaf: leaf.numpy(), sample_["experience"])
            for observed, mask in zip(
                sequence.trajectory.observation["observation"], sequence.mask
            ):
                assert len(mask) == length
                found.add(tuple(tuple(row) for row in observed[mask > 0].tolist()))
            keys |= set(info.key.numpy().tolist())
            if len(keys) == num_items:
                break
    finally:
        replay.stop()
    assert len(found) == num_items
    # The last row of an episode comes with the tick after it.
    whole = windows(TICKS - 1)
    assert len(whole) > 50
    assert whole <= found
    unfinished = found - windows(2 * TICKS)
    assert not unfinished


@pytest.mark.parametrize("world", WORLDS)
def test_steps_counted_are_those_that_agents_took(world):
    env = make(world)
    taken = []
    step = env._lanes.step

    def count(actions):
        taken.append(sum(len(acting) for acting in env._lanes._acting))
        step(actions)

    env._lanes.step = count
    actor = actor_lib.Actor(
        env, Chooser(), tf.Variable(0, dtype=tf.int64), group_steps_per_run=TICKS
    )
    actor.run()
    assert actor.steps_taken == sum(taken)
    assert sum(taken) < TICKS * env.batch_size


def test_only_the_slots_of_the_policy_are_lanes():
    specs = [
        AgentSpec("walker_.*"),
        AgentSpec(".*", "other", frozen=lambda *_: Chooser()),
    ]
    env = make(counting_world.CountingParallelWorld, agents=specs)
    assert env.batch_size == 2 * LANES
    expected = reference(counting_world.CountingParallelWorld, ["walker_0", "walker_1"])
    time_step = env.reset()
    for tick in range(3):
        acting = np.asarray(time_step.step_type) != 2
        observed = time_step.observation["observation"]
        for slot in np.flatnonzero(acting):
            known = [step.observation for step in expected[slot]]
            assert tuple(observed[slot].tolist()) in known, (tick, slot)
        time_step = env.step(counting_world.choose(observed))
