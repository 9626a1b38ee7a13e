"""Cells of rows, from observer through a real Reverb server to transitions."""

import collections

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import tree
from reverb import structured_writer
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import blocks
from actor_learner.replay.reading import datasets
from actor_learner.replay.server import server, tables
from actor_learner.replay.writing import block_observer, item_observer
from actor_learner.support import errors

FIRST, MID, LAST = 0, 1, 2
TABLE = "queue"


def spec(observation):
    step = ts.time_step_spec(observation)
    action = tensor_spec.BoundedTensorSpec([], tf.int64, 0, 9)
    return trajectory_lib.Trajectory(
        step.step_type, observation, action, (), step.step_type, step.reward, step.discount
    )


class World:
    """Lanes with episodes of random length; the observation is (lane, episode, step)."""

    SPEC = spec(tensor_spec.BoundedTensorSpec([3], tf.int32, 0, 10_000))

    def __init__(self, lanes, seed=0):
        self._random = np.random.default_rng(seed)
        self._lanes = lanes
        self._episode = np.zeros(lanes, np.int32)
        self._step = np.zeros(lanes, np.int32)
        self._length = self._random.integers(1, 6, lanes)
        self.history = []

    def row(self):
        at_end = self._step == self._length
        step_type = np.where(at_end, LAST, np.where(self._step == 0, FIRST, MID)).astype(np.int32)
        observation = np.stack([np.arange(self._lanes), self._episode, self._step], axis=1)
        next_type = np.where(at_end, FIRST, np.where(self._step + 1 == self._length, LAST, MID))
        truncated = self._episode % 2 == 0
        row = trajectory_lib.Trajectory(
            step_type,
            observation.astype(np.int32),
            self._random.integers(0, 10, self._lanes),
            (),
            next_type.astype(np.int32),
            self._random.integers(1, 50, self._lanes).astype(np.float32),
            np.where((next_type == LAST) & ~truncated, 0.0, 1.0).astype(np.float32),
        )
        self._step = np.where(at_end, 0, self._step + 1).astype(np.int32)
        self._episode += at_end
        self._length = np.where(at_end, self._random.integers(1, 6, self._lanes), self._length)
        self.history.append(row)
        return row


def expected_transitions(history, n_step, gamma):
    """(lane, episode, step, action, return, discount, bootstrap step), by plain loops."""
    found = collections.Counter()
    for t in range(len(history) - n_step):
        for lane in range(len(history[0].reward)):
            at = [tuple(history[k].observation[lane].tolist()) for k in range(len(history))]
            if history[t].step_type[lane] == LAST:
                continue
            total, discount, k = 0.0, 1.0, t
            while True:
                total += gamma ** (k - t) * discount * float(history[k].reward[lane])
                discount *= float(history[k].discount[lane])
                k += 1
                if k - t == n_step or history[k].step_type[lane] == LAST:
                    break
            discount *= gamma ** (k - t - 1)
            action = int(history[t].action[lane])
            found[(*at[t], action, round(total, 3), round(discount, 5), at[k][2])] += 1
    return found


class Queue:
    """A table that hands each item out once, its observer, and all transitions in it."""

    def __init__(self, layout, flush_seconds=3600.0, max_size=10_000):
        self.layout = layout
        self.server = server.ReplayServer(
            [tables.queue_table(TABLE, max_size, signature=layout.signature())]
        )
        self.version = 0
        self.observer = block_observer.BlockObserver(
            self.server.client(),
            TABLE,
            layout,
            flush_seconds=flush_seconds,
            version=lambda: self.version,
        )

    def batches(self, gamma=1.0):
        dataset = datasets.lane_transitions(
            self.server.address,
            TABLE,
            self.layout,
            1,
            gamma=gamma,
            shuffle_items=1,
            timeout_seconds=0.2,
        )
        return list(dataset.as_numpy_iterator())

    def transitions(self, gamma):
        found = collections.Counter()
        for trajectory, _ in self.batches(gamma):
            found[
                (
                    *trajectory.observation[0, 0].tolist(),
                    int(trajectory.action[0, 0]),
                    round(float(trajectory.reward[0, 0]), 3),
                    round(float(trajectory.discount[0, 0]), 5),
                    int(trajectory.observation[0, 1, 2]),
                )
            ] += 1
            np.testing.assert_array_equal(
                trajectory.observation[0, 0, :2], trajectory.observation[0, 1, :2]
            )
        return found


@pytest.fixture
def make_queue():
    made = []

    def make(layout, **options):
        made.append(Queue(layout, **options))
        return made[-1]

    yield make
    for queue in made:
        queue.observer.close()
        queue.server.stop()


LAYOUTS = [(1, 1, 1), (1, 16, 1), (3, 4, 1), (2, 4, 3), (2, 2, 5)]


@pytest.mark.parametrize("lanes, rows_per_item, n_step", LAYOUTS)
def test_every_transition_is_read_exactly_once(make_queue, lanes, rows_per_item, n_step):
    layout = blocks.BlockLayout(World.SPEC, lanes, n_step=n_step, rows_per_item=rows_per_item)
    queue, world = make_queue(layout), World(lanes)
    for _ in range(7):
        queue.observer(world.row())
    queue.observer.flush()  # Too early for a full cell of 16 rows: written all the same.
    for _ in range(34):
        queue.observer(world.row())
    queue.observer.flush()
    queue.observer.reset()
    assert queue.transitions(gamma=0.5) == expected_transitions(world.history, n_step, 0.5)


def test_flushing_leaves_the_young_rows_of_an_unfinished_cell_for_later(make_queue):
    layout = blocks.BlockLayout(World.SPEC, 2, rows_per_item=8)
    queue, world = make_queue(layout), World(2)
    for count in (20, 10):
        for _ in range(count):
            queue.observer(world.row())
        queue.observer.flush()
    assert queue.server.info().tables[TABLE].size == 2
    queue.observer.close()
    assert queue.server.info().tables[TABLE].size == 4
    assert queue.transitions(1.0) == expected_transitions(world.history, 1, 1.0)


class Clock:
    """Stands in for the module `time` of the observers."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        for module in (block_observer, item_observer):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self):
        return self.now


@pytest.mark.parametrize("lanes, rows_per_item, n_step", LAYOUTS)
def test_rows_that_have_waited_long_enough_can_be_read_at_once(
    make_queue, monkeypatch, lanes, rows_per_item, n_step
):
    clock = Clock(monkeypatch)
    layout = blocks.BlockLayout(World.SPEC, lanes, n_step=n_step, rows_per_item=rows_per_item)
    queue, world = make_queue(layout, flush_seconds=5.0), World(lanes)
    found = collections.Counter()
    for turn in range(40):
        # Sometimes long after the row before, sometimes shortly.
        clock.now += 5.0 if turn % 3 else 0.5
        queue.observer(world.row())
        if turn % 3 == 2:  # The row before, which was observed 5 s earlier, was not yet confirmed.
            found += queue.transitions(gamma=0.5)
            assert found == expected_transitions(world.history, n_step, 0.5)
    queue.observer.close()
    found += queue.transitions(gamma=0.5)
    assert found == expected_transitions(world.history, n_step, 0.5)


def test_a_flush_writes_an_unfinished_cell_only_if_its_rows_are_old(make_queue, monkeypatch):
    clock = Clock(monkeypatch)
    layout = blocks.BlockLayout(World.SPEC, 2, rows_per_item=8)
    queue, world = make_queue(layout, flush_seconds=5.0), World(2)
    sizes = []
    for count, seconds in [(10, 0.0), (3, 4.0), (3, 1.0), (0, 0.0), (0, 5.0), (2, 0.0)]:
        for _ in range(count):
            queue.observer(world.row())
        clock.now += seconds
        queue.observer.flush()
        sizes.append(queue.server.info().tables[TABLE].size)
    # The first rows at once, in two cells; then nothing until they are 5 s old. The last row waits
    # for the one that completes its transition, however old it is, and is then written at once.
    assert sizes == [2, 2, 3, 3, 3, 4]


def test_a_table_that_fills_up_is_spared_short_items_for_longer(make_queue, monkeypatch):
    clock = Clock(monkeypatch)
    layout = blocks.BlockLayout(World.SPEC, 1, rows_per_item=8)
    queue, world = make_queue(layout, flush_seconds=1.0, max_size=16), World(1)
    sizes = []
    for count, seconds in [(2, 1.0)] * 7 + [(10, 1.0), (2, 58.0), (0, 1.0)]:
        for _ in range(count):
            queue.observer(world.row())
        clock.now += seconds
        queue.observer.flush()
        sizes.append(queue.server.info().tables[TABLE].size)
    # Four short items are a quarter of the table. Then a full one, and when the next has waited for
    # 60 s, that one and a short one.
    assert sizes == [1, 2, 3, 4, 4, 4, 4, 5, 5, 7]
    queue.observer.close()
    assert queue.transitions(1.0) == expected_transitions(world.history, 1, 1.0)


def test_no_transition_spans_a_reset_of_the_observer(make_queue):
    layout = blocks.BlockLayout(World.SPEC, 2, n_step=2, rows_per_item=4)
    queue, expected = make_queue(layout), collections.Counter()
    world = World(2)
    for _ in range(3):
        world.history = []
        for _ in range(11):
            queue.observer(world.row())
        queue.observer.reset()
        expected += expected_transitions(world.history, 2, 0.9)
    assert queue.transitions(0.9) == expected


def test_a_reset_that_the_server_does_not_confirm_says_who_waits_for_whom(monkeypatch):
    layout = blocks.BlockLayout(World.SPEC, 1)
    world, signature = World(1), layout.signature()
    with server.ReplayServer([tables.queue_table(TABLE, 1, signature=signature)]) as full:
        observer = block_observer.BlockObserver(
            full.client(), TABLE, layout, flush_seconds=3600.0, timeout_seconds=0.3
        )
        for _ in range(5):
            observer(world.row())
        with pytest.raises(errors.ReplayTimeoutError, match="an actor has waited 0.3 s"):
            observer.reset()
        # The same if the server stops taking items between the two calls that a reset consists of.
        with monkeypatch.context() as patched:
            patched.setattr(structured_writer.StructuredWriter, "flush", lambda *_: None)
            with pytest.raises(errors.ReplayTimeoutError, match="inserting waits for samples"):
                observer.reset()
        with pytest.raises(errors.ReplayTimeoutError, match="an actor has waited 0.3 s"):
            observer.close()  # Gives up instead of waiting for ever.
        observer.close()


def test_rows_carry_the_version_of_the_policy_that_acted(make_queue):
    queue, world = make_queue(blocks.BlockLayout(World.SPEC, 1, rows_per_item=4)), World(1)
    versions = {}
    for version in range(9):
        queue.version = version
        row = world.row()
        versions[tuple(row.observation[0])] = version
        queue.observer(row)
    queue.observer.reset()
    for trajectory, info in queue.batches():
        assert info.version[0] == versions[tuple(trajectory.observation[0, 0])]


class Camera(gymnasium.Env):
    """Frames of random bytes, episodes of random length."""

    def __init__(self, shape):
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 7))
        return self._frame(), {}

    def step(self, action):
        self._left -= 1
        end = self._left == 0
        cut = bool(self.np_random.integers(2))
        return self._frame(), 1.0, end and cut, end and not cut, {}

    def _frame(self):
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


class LastAxis(gymnasium.ObservationWrapper):
    """Moves stacked frames from the first to the last dimension."""

    def __init__(self, env):
        super().__init__(env)
        shape = env.observation_space.shape
        self.observation_space = gymnasium.spaces.Box(0, 255, (*shape[1:], shape[0]), np.uint8)

    def observation(self, observation):
        return np.moveaxis(np.asarray(observation), 0, -1)


def stacked_rows(lanes, count, shape, padding_type, axis):
    """Rows of lanes, from Gymnasium's own wrapper, with next-step resets."""
    envs = []
    for _ in range(lanes):
        env = gymnasium.wrappers.FrameStackObservation(Camera(shape), 3, padding_type=padding_type)
        envs.append(env if axis == 0 else LastAxis(env))
    seeds = iter(range(lanes))
    now = [(env.reset(seed=next(seeds))[0], FIRST) for env in envs]
    history = []
    for _ in range(count):
        then, rewards, discounts = [], [], []
        for env, (_, step_type) in zip(envs, now):
            if step_type == LAST:
                then.append((env.reset()[0], FIRST))
                rewards.append(0.0), discounts.append(1.0)
                continue
            observation, reward, terminated, truncated, _ = env.step(0)
            then.append((observation, LAST if terminated or truncated else MID))
            rewards.append(reward), discounts.append(0.0 if terminated else 1.0)
        history.append(
            trajectory_lib.Trajectory(
                np.array([step_type for _, step_type in now], np.int32),
                np.stack([np.array(observation) for observation, _ in now]),
                np.zeros(lanes, np.int64),
                (),
                np.array([step_type for _, step_type in then], np.int32),
                np.array(rewards, np.float32),
                np.array(discounts, np.float32),
            )
        )
        now = then
    return history


@pytest.mark.parametrize(
    "lanes, rows_per_item, n_step, shape, padding_type, axis",
    [
        (3, 1, 1, (36, 36), "reset", 0),
        (2, 1, 3, (36, 36), "zero", 2),
        (2, 4, 2, (5,), "reset", 0),
        (1, 2, 1, (36, 30), "zero", 0),
    ],
)
def test_stacks_are_rebuilt_bit_by_bit(
    make_queue, monkeypatch, lanes, rows_per_item, n_step, shape, padding_type, axis
):
    clock = Clock(monkeypatch)
    history = stacked_rows(lanes, 40, shape, padding_type, axis)
    stacked_shape = history[0].observation.shape[1:]
    data_spec = spec(tensor_spec.BoundedTensorSpec(stacked_shape, tf.uint8, 0, 255))
    layout = blocks.BlockLayout(
        data_spec, lanes, n_step=n_step, rows_per_item=rows_per_item, frame_stack=3
    )
    frames = layout.large.get("observation") or layout.parts["observation"].field
    assert frames.shape == shape
    queue = make_queue(layout, flush_seconds=1.0)  # Every third row ends a segment.
    for row in history[:4]:
        queue.observer(row)
    queue.observer.flush()
    for row in history[4:30]:
        queue.observer(row)
        clock.now += 0.4
    queue.observer.reset()  # In the middle of episodes: their older frames are not lost.
    for row in history[30:]:
        queue.observer(row)
    queue.observer.close()
    expected = collections.Counter()
    for part in (history[:30], history[30:]):
        for t in range(len(part) - n_step):
            for lane in range(lanes):
                if part[t].step_type[lane] == LAST:
                    continue
                end = t + 1
                while end < t + n_step and part[end].step_type[lane] != LAST:
                    end += 1
                pair = part[t].observation[lane], part[end].observation[lane]
                expected[tuple(stack.tobytes() for stack in pair)] += 1
    found = collections.Counter(
        (trajectory.observation[0, 0].tobytes(), trajectory.observation[0, 1].tobytes())
        for trajectory, _ in queue.batches()
    )
    assert found == expected


def image_rows(stacks, step_types):
    for stack, step_type in zip(stacks, step_types):
        yield trajectory_lib.Trajectory(
            np.array([step_type], np.int32),
            np.array(stack, np.uint8)[None],
            np.zeros(1, np.int64),
            (),
            np.array([MID], np.int32),
            np.zeros(1, np.float32),
            np.ones(1, np.float32),
        )


def frames(*numbers):
    return [np.full((2, 2), number) for number in numbers]


@pytest.mark.parametrize(
    "second, message",
    [
        (frames(1, 2, 3), "does not hold the last frames of the step before"),
        (frames(2, 1, 1), "does not hold"),
    ],
)
def test_observations_that_are_no_stacks_are_refused(make_queue, second, message):
    data_spec = spec(tensor_spec.BoundedTensorSpec([3, 2, 2], tf.uint8, 0, 255))
    queue = make_queue(blocks.BlockLayout(data_spec, 1, frame_stack=3))
    good, bad = image_rows([frames(1, 1, 1), second], [FIRST, MID])
    queue.observer(good)
    with pytest.raises(errors.SpecMismatchError, match=message) as error:
        queue.observer(bad)
    assert "field 'observation', lane 0" in str(error.value)
    assert "LaneReplay.frame_stack" in str(error.value)


@pytest.mark.parametrize("axis, refused_within", [(0, 1), (-1, 3)])
def test_stacks_that_go_wrong_later_are_found_in_every_lane_or_by_turns(
    make_queue, axis, refused_within
):
    lanes = 3

    def row(numbers, broken=False):
        """Stacks of the frames `numbers` in every lane; in the last one perhaps another."""
        stacks = np.stack([np.stack(frames(*numbers), axis)] * lanes)
        if broken:
            stacks[-1] += 1
        (single,) = image_rows([stacks[0]], [MID])
        repeated = tree.map_structure(lambda leaf: np.repeat(leaf, lanes, axis=0), single)
        return repeated._replace(observation=stacks.astype(np.uint8))

    shape = np.stack(frames(1, 2, 3), axis).shape
    data_spec = spec(tensor_spec.BoundedTensorSpec(shape, tf.uint8, 0, 255))
    queue = make_queue(blocks.BlockLayout(data_spec, lanes, frame_stack=3))
    for t in range(80):
        queue.observer(row((t, t + 1, t + 2)))
    refused = 0
    for t in range(80, 80 + refused_within):
        try:
            queue.observer(row((t, t + 1, t + 2), broken=t % 2 == 0))
        except errors.SpecMismatchError as error:
            assert "lane 2" in str(error)
            refused += 1
            break
    assert refused == 1


def test_an_episode_that_starts_with_other_frames_is_refused(make_queue):
    data_spec = spec(tensor_spec.BoundedTensorSpec([3, 2, 2], tf.uint8, 0, 255))
    queue = make_queue(blocks.BlockLayout(data_spec, 1, frame_stack=3))
    (row,) = image_rows([frames(3, 2, 1)], [FIRST])
    with pytest.raises(errors.SpecMismatchError, match="starts an episode with frames"):
        queue.observer(row)
