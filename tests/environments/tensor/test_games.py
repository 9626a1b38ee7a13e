"""The games and the corridor against references that know one lane, in plain Python."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.environments import memory
from actor_learner.environments.tensor import (
    bricks,
    crossing,
    dynamics,
    environment,
    gathering,
    memory_corridor,
)

LANES = 16
STEPS = 400


class BricksReference:
    """One game, with a set of bricks and a loop over cases."""

    def __init__(self, column, right):
        self.ball, self.down, self.right, self.paddle = [4, column], 1, right, 5
        self.bricks = {(row, column) for row in (1, 2, 3) for column in range(10)}

    def step(self, action, draws):
        self.paddle = min(9, max(0, self.paddle + {0: 0, 1: -1, 2: 1}[action]))
        if not 0 <= self.ball[1] + self.right <= 9:
            self.right = -self.right
        if self.ball[0] + self.down < 0:
            self.down = 1
        target = (self.ball[0] + self.down, self.ball[1] + self.right)
        reward, over = 0.0, False
        if target in self.bricks:
            self.bricks.remove(target)
            reward, self.down, target = 1.0, -self.down, (self.ball[0], target[1])
        elif target[0] == 9:
            if target[1] == self.paddle:
                self.down, target = -self.down, (self.ball[0], target[1])
            else:
                over = True
        self.ball = list(target)
        if not self.bricks and self.ball[0] > 3:
            self.bricks = {(row, column) for row in (1, 2, 3) for column in range(10)}
        return reward, over

    def cells(self):
        return [{(9, self.paddle)}, {tuple(self.ball)}, self.bricks]


class CrossingReference:
    def __init__(self, cars, periods):
        self.row, self.time = 9, 0
        self.cars, self.periods = list(cars), list(periods)

    def step(self, action, draws):
        self.time += 1
        self.row = min(9, max(0, self.row + {0: 0, 1: -1, 2: 1}[action]))
        for i, period in enumerate(self.periods):
            if self.time % abs(period) == 0:
                self.cars[i] = (self.cars[i] + (1 if period > 0 else -1)) % 10
        hit = 1 <= self.row <= 8 and self.cars[self.row - 1] == 4
        across = self.row == 0
        if hit or across:
            self.row = 9
        return float(across), False

    def cells(self):
        right = {(i + 1, car) for i, car in enumerate(self.cars) if self.periods[i] > 0}
        left = {(i + 1, car) for i, car in enumerate(self.cars) if self.periods[i] < 0}
        return [{(self.row, 4)}, right, left]


class GatheringReference:
    def __init__(self):
        self.row, self.column, self.time = 5, 5, 0
        self.things = {}  # Row: [column, way, is gold]

    def step(self, action, draws):
        self.time += 1
        self.column = min(9, max(0, self.column + {1: -1, 2: 1}.get(action, 0)))
        self.row = min(8, max(1, self.row + {3: -1, 4: 1}.get(action, 0)))
        row, side, kind = draws
        if self.time % 3 == 0 and row + 1 not in self.things:
            self.things[row + 1] = [0 if side == 0 else 9, 1 if side == 0 else -1, kind == 0]
        reward, over = 0.0, False
        for row, thing in list(self.things.items()):
            before = thing[0]
            if self.time % 2 == 0:
                thing[0] += thing[1]
            if row == self.row and self.column in (before, thing[0]):
                reward, over = (1.0, over) if thing[2] else (reward, True)
                del self.things[row]
            elif not 0 <= thing[0] <= 9:
                del self.things[row]
        return reward, over

    def cells(self):
        def of(wanted):
            return {(row, thing[0]) for row, thing in self.things.items() if wanted(thing)}

        return [
            {(self.row, self.column)},
            of(lambda thing: not thing[2]),
            of(lambda thing: thing[2]),
            of(lambda thing: thing[1] > 0),
        ]


def draws_of(seed):
    """What `GatheringDynamics` draws in a step with this seed."""
    limits = (8, 2, 3)
    seeds = (seed, dynamics.another(seed, 1), dynamics.another(seed, 2))
    return [
        tf.random.stateless_uniform([LANES], one, 0, limit, tf.int32).numpy()
        for one, limit in zip(seeds, limits)
    ]


def references_of(game, state):
    if isinstance(game, bricks.BricksDynamics):
        pairs = zip(state.column.numpy(), state.right.numpy())
        return [BricksReference(column, right) for column, right in pairs]
    if isinstance(game, crossing.CrossingDynamics):
        pairs = zip(state.cars.numpy(), state.periods.numpy())
        return [CrossingReference(cars, periods) for cars, periods in pairs]
    return [GatheringReference() for _ in range(LANES)]


def action_of(game, reference, random):
    """Mostly what keeps the game going, so that rare cases are met."""
    if isinstance(reference, BricksReference) and random.uniform() < 0.9:
        return 1 + int(reference.ball[1] + reference.right > reference.paddle)
    if isinstance(reference, CrossingReference) and random.uniform() < 0.7:
        return 1
    return int(random.integers(game.action_space.n))


@pytest.mark.parametrize(
    "make", [bricks.BricksDynamics, crossing.CrossingDynamics, gathering.GatheringDynamics]
)
def test_a_game_is_played_as_its_reference_plays_it(make):
    game, random = make(), np.random.default_rng(0)
    state = game.reset(LANES, tf.constant([1, 0], tf.int64))
    references = references_of(game, state)
    step = tf.function(game.step, autograph=False)
    observe = tf.function(game.observe, autograph=False)
    rewards = episodes = 0
    for count in range(1, STEPS):
        seed = tf.constant([1, count], tf.int64)
        actions = [action_of(game, reference, random) for reference in references]
        outcome = step(state, tf.constant(actions, tf.int64), seed)
        draws = np.stack(draws_of(seed), axis=1)
        expected = [r.step(a, d) for r, a, d in zip(references, actions, draws)]
        np.testing.assert_array_equal(outcome.reward, [reward for reward, _ in expected])
        np.testing.assert_array_equal(outcome.terminated, [over for _, over in expected])
        shown = observe(outcome.state).numpy()
        for lane, reference in enumerate(references):
            for channel, cells in enumerate(reference.cells()):
                assert set(zip(*map(np.ndarray.tolist, shown[lane, :, :, channel].nonzero()))) == (
                    cells
                )
        rewards += sum(reward for reward, _ in expected)
        over = outcome.terminated.numpy()
        episodes += over.sum()
        state = outcome.state
        if over.any():
            fresh = game.reset(LANES, tf.constant([2, count], tf.int64))
            state = tf.nest.map_structure(
                lambda new, old: np.where(over.reshape(-1, *[1] * (new.ndim - 1)), new, old),  # noqa: B023
                fresh,
                state,
            )
            begun = references_of(game, fresh)
            references = [b if o else r for b, o, r in zip(begun, over, references)]
    assert rewards > 10
    assert episodes > 0 or make is crossing.CrossingDynamics


def test_the_wall_is_rebuilt_when_the_ball_is_below_it():
    game = bricks.BricksDynamics()
    state = game.reset(1, tf.constant([1, 0], tf.int64))
    one_left = np.zeros((1, 3, 10), np.bool_)
    one_left[0, 2, 4] = True
    state = state._replace(
        row=tf.constant([4]),
        column=tf.constant([3]),
        down=tf.constant([-1]),
        right=tf.constant([1]),
        wall=tf.constant(one_left),
    )
    outcome = game.step(state, tf.constant([0]), tf.constant([1, 1], tf.int64))
    assert outcome.reward.numpy() == 1.0
    assert outcome.state.wall.numpy().all()  # The ball is in row 4, below all bricks.


def test_the_corridor_is_that_of_gymnasium():
    game = memory_corridor.MemoryCorridorDynamics(num_cues=3, shortest_delay=1, longest_delay=4)
    state = game.reset(LANES, tf.constant([1, 0], tf.int64))
    reference = memory._Corridors(LANES, 3, 1, 4)
    reference.cue[:], reference._delay[:] = state.cue.numpy(), state.delay.numpy()
    random = np.random.default_rng(0)
    for count in range(1, 8):
        seen, expected = game.observe(state).numpy(), reference.observation(random)
        np.testing.assert_array_equal(seen[:, 3:], expected[:, 3:])  # Which part of the episode.
        cue_shown = expected[:, 3] == 1
        np.testing.assert_array_equal(seen[cue_shown], expected[cue_shown])
        np.testing.assert_array_equal(seen[:, :3].sum(axis=1), expected[:, :3].sum(axis=1))
        actions = random.integers(3, size=LANES)
        outcome = game.step(state, tf.constant(actions), tf.constant([1, count], tf.int64))
        reward, over = reference.advance(actions)
        np.testing.assert_array_equal(outcome.reward, reward)
        np.testing.assert_array_equal(outcome.terminated, over)
        state = outcome.state
    fresh = game.reset(3_000, tf.constant([9, 9], tf.int64))
    assert np.unique(fresh.delay).tolist() == [1, 2, 3, 4]
    assert np.bincount(fresh.cue).min() > 900


@pytest.mark.parametrize(
    "make",
    [
        bricks.BricksDynamics,
        crossing.CrossingDynamics,
        gathering.GatheringDynamics,
        memory_corridor.MemoryCorridorDynamics,
    ],
)
def test_a_picture_shows_what_is_observed(make):
    env = environment.TensorEnvironment(make(), 2, seed=1, render_mode="rgb_array")
    env.reset()
    before = env.render()
    for _ in range(7):
        env.step(np.zeros(2, np.int64))
    after = env.render()
    assert before.shape == after.shape and before.shape[2] == 3
    assert (before != after).any()
