"""The interquartile mean and its bootstrap interval, against values known by other ways."""

import itertools

import numpy as np
import pytest

from benchmarks import interquartile


@pytest.mark.parametrize(
    "scores, expected",
    [
        ([4.0], 4.0),
        ([0.0, 3.0, 9.0], 4.0),  # A quarter of three is less than one: none is left out.
        ([100.0, 1.0, 2.0, 3.0], 2.5),
        ([-50.0, 1.0, 2.0, 6.0, 1_000.0], 3.0),
        (range(8), 3.5),
        ([[1.0, 2.0], [3.0, 100.0]], 2.5),
    ],
)
def test_the_middle_half_is_averaged(scores, expected):
    assert interquartile.interquartile_mean(np.array(scores, float)) == expected


def test_it_is_the_trimmed_mean_that_rliable_takes():
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    for size in range(1, 40):
        scores = random.normal(size=size)
        expected = stats.trim_mean(scores, proportiontocut=0.25)
        assert interquartile.interquartile_mean(scores) == pytest.approx(expected)


@pytest.mark.parametrize("scores", [[1.0, 5.0, 6.0], [480.0, 500.0, 455.5, 490.0, 499.0]])
def test_the_interval_is_that_of_all_resamples_there_are(scores):
    means = [
        interquartile.interquartile_mean(np.array(drawn))
        for drawn in itertools.product(scores, repeat=len(scores))
    ]
    found = interquartile.with_interval(scores, repetitions=200_000)
    assert found.mean == interquartile.interquartile_mean(np.array(scores))
    assert found.low == pytest.approx(np.percentile(means, 2.5), abs=1.0)
    assert found.high == pytest.approx(np.percentile(means, 97.5), abs=1.0)
    assert found.low < found.mean < found.high


def test_runs_are_drawn_within_their_task():
    # Whatever is drawn, half of the scores are those of each task: a mean of 5 and no spread.
    scores = np.array([[0.0, 10.0]] * 4)
    assert interquartile.with_interval(scores) == (5.0, 5.0, 5.0)


def test_one_seed_gives_one_interval():
    scores = np.random.default_rng(1).normal(size=7)
    assert interquartile.with_interval(scores) == interquartile.with_interval(scores)
    other = interquartile.with_interval(scores, seed=1, repetitions=100)
    assert other != interquartile.with_interval(scores, repetitions=100)


def test_seeds_that_agree_have_no_interval():
    assert interquartile.with_interval([500.0] * 5) == (500.0, 500.0, 500.0)


def test_no_scores_have_no_mean():
    with pytest.raises(ValueError, match="no score"):
        interquartile.interquartile_mean(np.array([]))
