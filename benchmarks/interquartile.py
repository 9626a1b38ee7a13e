"""The interquartile mean of scores over seeds, with a bootstrap interval, as rliable reports it.

The mean of a few seeds is ruled by the luckiest or unluckiest of them, and a median of few moves in
jumps. The interquartile mean leaves out the lowest and the highest quarter (Agarwal et al., 2021,
"Deep Reinforcement Learning at the Edge of the Statistical Precipice"). With three seeds or fewer a
quarter is less than one, and nothing is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

REPETITIONS = 20_000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An interquartile mean, and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


def interquartile_mean(scores: np.ndarray) -> float:
    """Mean of the middle half of all scores, of any shape; of each end `size // 4` are left out."""
    ordered = np.sort(np.asarray(scores, np.float64), axis=None)
    if not ordered.size:
        raise ValueError("there is no score to take the interquartile mean of")
    cut = ordered.size // 4
    return float(np.mean(ordered[cut : ordered.size - cut]))


def with_interval(
    scores: np.ndarray,
    *,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """The interquartile mean with its stratified bootstrap interval, by percentiles.

    Each repetition draws as many runs as there are, with replacement, from each task's own.

    Args:
      scores: `[runs]` of one task, or `[runs, tasks]`.
      repetitions: How often runs are drawn.
      confidence: Share of the repetitions that the interval holds.
      seed: Of the draws.
    """
    scores = np.asarray(scores, np.float64)
    mean = interquartile_mean(scores)
    columns = scores.reshape(len(scores), -1)  # [runs, tasks]
    num_runs, num_tasks = columns.shape
    drawn = np.random.default_rng(seed).integers(num_runs, size=(repetitions, num_runs, num_tasks))
    sampled = np.take_along_axis(columns[np.newaxis], drawn, axis=1).reshape(repetitions, -1)
    ordered = np.sort(sampled, axis=1)
    cut = columns.size // 4
    means = ordered[:, cut : columns.size - cut].mean(axis=1)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(means, [tail, 100.0 - tail])
    return Interval(mean, float(low), float(high))
