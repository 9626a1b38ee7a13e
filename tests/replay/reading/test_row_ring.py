"""The learner's own ring of rows: what can be drawn, how often, and that a seed repeats it."""

import numpy as np

from actor_learner.replay.reading import row_ring

FIRST, MID, LAST = 0, 1, 2


def fill(ring, num_rows, lanes=2, episode=4):
    """Lane k's row t holds the number 100 * k + t; episodes have `episode` steps and a LAST."""
    for t in range(num_rows):
        phase = (t + np.arange(lanes)) % (episode + 1)
        step_type = np.where(phase == 0, FIRST, np.where(phase == episode, LAST, MID))
        following = (phase + 1) % (episode + 1)
        next_type = np.where(following == 0, FIRST, np.where(following == episode, LAST, MID))
        row = {"value": 100 * np.arange(lanes) + t, "version": np.int64(t)}
        ring.add(row, step_type, next_type)


def test_windows_are_consecutive_rows_of_one_lane_and_never_begin_at_an_episodes_end():
    ring = row_ring.RowRing(capacity=10, window=3, seed=0)
    fill(ring, 23)
    assert len(ring) == 10
    drawn = ring.sample(500)["value"]
    assert drawn.shape == (500, 3)
    np.testing.assert_array_equal(np.diff(drawn, axis=1), 1)
    time, lane = drawn[:, 0] % 100, drawn[:, 0] // 100
    assert time.min() == 13 and time.max() == 20  # The 8 oldest rows with two more behind them.
    assert not np.any((time + lane) % 5 == 4)


def test_every_window_is_equally_likely():
    ring = row_ring.RowRing(capacity=12, window=2, seed=1)
    fill(ring, 40)
    windows = ring.num_windows()
    drawn = ring.sample(400 * windows)["value"][:, 0]
    values, counts = np.unique(drawn, return_counts=True)
    assert len(values) == windows
    chi_square = np.sum((counts - 400) ** 2 / 400)
    assert chi_square < windows + 5 * np.sqrt(2 * windows)


def test_the_same_seed_and_rows_draw_the_same_and_another_seed_does_not():
    draws = []
    for seed in (3, 3, 4):
        ring = row_ring.RowRing(capacity=50, window=2, seed=seed)
        fill(ring, 60)
        draws.append(ring.sample(32))
    np.testing.assert_array_equal(draws[0]["value"], draws[1]["value"])
    np.testing.assert_array_equal(draws[0]["version"], draws[0]["value"] % 100)
    assert np.any(draws[0]["value"] != draws[2]["value"])


def test_a_row_that_does_not_follow_the_one_before_cuts_its_windows():
    ring = row_ring.RowRing(capacity=10, window=2, seed=0)
    one = np.ones(1, np.int32)
    ring.add({"value": np.array([0])}, one * FIRST, one * MID)
    ring.add({"value": np.array([1])}, one * FIRST, one * MID)  # Reset from outside.
    assert ring.num_windows() == 0
    ring.add({"value": np.array([2])}, one * MID, one * MID)
    assert ring.num_windows() == 1
    assert ring.sample(1)["value"].tolist() == [[1, 2]]
