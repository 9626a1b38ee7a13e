"""What a lane draws depends on its number and the seed, and on nothing else."""

import numpy as np
import pytest

from actor_learner.inference import lite, noise
from tests.inference import policies

OBSERVATION = policies.OBSERVATIONS["vector"]


def numbers(draws, lanes, steps, *, seed=1, first_lane=0):
    """For each draw `[steps, *shape]`."""
    source = noise.LaneNoise(draws, lanes, seed, first_lane)
    taken = []
    for _ in range(steps):
        position = source.next_step()
        taken.append([block[position].copy() for block in source.blocks])
    return [np.stack(each) for each in zip(*taken)]


KINDS = {
    "uniform": noise.Draw("uniform", (6,), np.float32, lanes_axis=0),
    "normal, lanes last": noise.Draw("normal", (2, 6), np.float32, lanes_axis=1),
    "gumbel, three rows a lane": noise.Draw("gumbel", (18, 4), np.float32, lanes_axis=0),
    "integers": noise.Draw("integers", (6,), np.int64, (0, 5), lanes_axis=0),
}


def of_lanes(draw, count):
    shape = list(draw.shape)
    shape[draw.lanes_axis] = shape[draw.lanes_axis] * count // 6
    return draw._replace(shape=tuple(shape))


@pytest.mark.parametrize("kind", KINDS)
def test_a_lane_draws_the_same_in_any_group(kind):
    draws = list(KINDS.values())
    which, draw = list(KINDS).index(kind), KINDS[kind]
    together = numbers(draws, 6, steps=600)[which]
    parts = [
        numbers([of_lanes(d, count) for d in draws], count, 600, first_lane=first)[which]
        for first, count in ((0, 1), (1, 3), (4, 2))
    ]
    np.testing.assert_array_equal(together, np.concatenate(parts, axis=1 + draw.lanes_axis))


def test_blocks_of_another_length_hold_the_same_numbers(monkeypatch):
    draws = list(KINDS.values())
    long = numbers(draws, 6, steps=50)
    monkeypatch.setattr(noise, "_BLOCK_STEPS", 7)
    for one, other in zip(long, numbers(draws, 6, steps=50)):
        np.testing.assert_array_equal(one, other)


def test_lanes_draws_and_seeds_have_nothing_in_common():
    draw = noise.Draw("uniform", (4,), np.float32, lanes_axis=0)
    first, second = numbers([draw, draw], 4, steps=100)
    (other,) = numbers([draw], 4, steps=100, seed=2)
    columns = [*first.T, *second.T, *other.T]
    assert len({column.tobytes() for column in columns}) == 12
    correlations = np.corrcoef(columns) - np.eye(12)
    assert np.abs(correlations).max() < 0.4  # Of 100 numbers: four deviations.


def test_kinds_have_their_moments():
    draws = [
        noise.Draw("uniform", (100,), np.float32, lanes_axis=0),
        noise.Draw("normal", (100,), np.float32, lanes_axis=0),
        noise.Draw("gumbel", (100,), np.float32, lanes_axis=0),
        noise.Draw("integers", (100,), np.int32, (2, 5), lanes_axis=0),
    ]
    uniform, normal, gumbel, integers = numbers(draws, 100, steps=1_000)
    assert uniform.min() >= 0 and uniform.max() < 1
    np.testing.assert_allclose([uniform.mean(), uniform.var()], [1 / 2, 1 / 12], atol=0.01)
    np.testing.assert_allclose([normal.mean(), normal.var()], [0, 1], atol=0.02)
    np.testing.assert_allclose([gumbel.mean(), gumbel.var()], [0.57722, np.pi**2 / 6], atol=0.03)
    assert np.isfinite(gumbel).all() and integers.dtype == np.int32
    values, counts = np.unique(integers, return_counts=True)
    assert values.tolist() == [2, 3, 4]
    np.testing.assert_allclose(counts / integers.size, 1 / 3, atol=0.01)


def test_numbers_that_all_lanes_share_are_drawn_once():
    draw = noise.Draw("normal", (2,), np.float32)
    (drawn,) = numbers([draw], 5, steps=10)
    assert drawn.shape == (10, 2) and len(np.unique(drawn)) == 20


def test_the_axis_of_lanes_is_found_where_shapes_leave_a_doubt():
    """The policy is then looked at with another number of lanes."""
    asked = []

    def draws_of(lanes):
        asked.append(lanes)
        return [noise.Draw("normal", (3, lanes), np.float32) for _ in range(2)]

    draws = [noise.Draw("normal", (3, 3), np.float32) for _ in range(2)]
    found = noise.with_lanes_axes(draws, 3, draws_of)
    assert [draw.lanes_axis for draw in found] == [1, 1] and asked == [4]
    clear = [noise.Draw("normal", (2, 3), np.float32), noise.Draw("normal", (2,), np.float32)]
    found = noise.with_lanes_axes(clear, 3, draws_of)
    assert [draw.lanes_axis for draw in found] == [1, None] and asked == [4]


@pytest.mark.parametrize("name", ["dqn", "sac", "td3", "ddpg", "ppo", "ppo memory", "r2d2", "c51"])
def test_actions_of_a_lane_do_not_depend_on_its_group(name):
    agent = policies.agent_of(name, lanes=4)
    policy = agent.collect_policy
    if name == "r2d2":
        policy.epsilons = np.full(4, 0.5)  # Else lanes explore differently by their place.
    sizes = (2, 1, 1)  # Two lanes of two numbers each: which axis is which, shapes do not tell.
    groups = [
        lite.LiteInference(policy, size, seed=7, first_lane=first)
        for first, size in zip(np.cumsum((0, *sizes)), sizes)
    ]
    together = lite.LiteInference(policy, 4, seed=7)
    generator = np.random.default_rng(0)
    for _ in range(20):
        step = policies.time_step(generator, OBSERVATION, 4, generator.integers(0, 3, 4))
        answers, first = [], 0
        for group, size in zip(groups, sizes):
            part = policies.part_of(step, slice(first, first + size))
            answers.append(policies.flat(group.act(part)))
            first += size
        for whole, *parts in zip(policies.flat(together.act(step)), *answers):
            np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-5, atol=1e-6)
