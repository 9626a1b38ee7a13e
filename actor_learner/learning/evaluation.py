"""Evaluation during training: when, what its result is, and the best score so far."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.learning import interval_trigger, trigger_runner
from actor_learner.support import configurable

CHOSEN_BY = "chosen_by"
"""The part of a score that is the evaluation which chose the policy."""


@dataclasses.dataclass(frozen=True, eq=False)
class EvaluationResult:
    """The episodes of one evaluation and when it took place.

    Attributes:
      train_step: Train step of the evaluated policy.
      environment_step: Environment steps collected for training by then, over all lanes.
      returns: Undiscounted return of each episode, `[episodes]`.
      lengths: Steps of each episode, `[episodes]`.
      confirmed: The same policy on other episodes, which had no part in choosing it; None if it was
        not rated a second time.
    """

    train_step: int
    environment_step: int
    returns: np.ndarray
    lengths: np.ndarray
    confirmed: EvaluationResult | None = None

    def __post_init__(self) -> None:
        returns, lengths = np.asarray(self.returns), np.asarray(self.lengths)
        if returns.ndim != 1 or not returns.size or returns.shape != lengths.shape:
            raise ValueError(
                "an evaluation needs one return and one length for each of its episodes, at least "
                f"one: got returns of shape {returns.shape} and lengths of shape {lengths.shape}"
            )
        object.__setattr__(self, "returns", returns)
        object.__setattr__(self, "lengths", lengths)

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return int(self.returns.size)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns (of the population)."""
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.std(self.returns))

    @property
    def min(self) -> float:
        """Lowest return."""
        return float(np.min(self.returns))

    @property
    def max(self) -> float:
        """Highest return."""
        return float(np.max(self.returns))

    @property
    def is_finite(self) -> bool:
        """Whether mean and standard deviation are numbers, which one return can spoil."""
        return math.isfinite(self.std)

    def figures(self) -> dict[str, Any]:
        """Mean, std, min, max and episodes, by these names."""
        return dict(
            mean=self.mean, std=self.std, min=self.min, max=self.max, episodes=self.episodes
        )


def reaches(result: EvaluationResult, target_return: float | None) -> bool:
    """Whether a target is reached: by the evaluation, and by the one that confirms it."""
    if target_return is None or result.confirmed is None:
        return False
    return all(
        rated.is_finite and rated.mean >= target_return for rated in (result, result.confirmed)
    )


def supersedes(
    score: Mapping[str, Any], best: Mapping[str, Any] | None, target_return: float | None = None
) -> bool:
    """Whether a policy takes the place of the best one, by the scores of both.

    A policy that is confirmed to reach the target comes before one that is not. Otherwise the
    evaluations that choose decide, and the confirming ones have no say: a score that had to beat
    others would be too high by the luck it took, and this is the one that is shown.
    """
    if best is None:
        return True
    if target_return is not None:
        reached = score["mean"] >= target_return
        if reached != (best["mean"] >= target_return):
            return reached
    return score.get(CHOSEN_BY, score)["mean"] > best.get(CHOSEN_BY, best)["mean"]


def score_of(result: EvaluationResult) -> dict[str, Any]:
    """What `score.json` says: the figures of the confirming episodes, and of those that chose."""
    score = dict(
        (result.confirmed or result).figures(),
        train_step=int(result.train_step),
        environment_step=int(result.environment_step),
    )
    if result.confirmed is not None:
        score[CHOSEN_BY] = result.figures()
    return score


@configurable.register
class EvaluationTrigger(interval_trigger.IntervalTrigger):
    """Evaluates when due, tells observers, and asks to stop once a target return is reached.

    A target is reached when a second evaluation confirms it. If that of `evaluate` has not been
    confirmed already, it is called once more, and should then play other episodes.
    """

    def __init__(
        self,
        evaluate: Callable[[], EvaluationResult],
        train_step: tf.Variable,
        interval: int | None,
        *,
        seconds: float | None = None,
        target_return: float | None = None,
        observers: Sequence[Callable[[EvaluationResult], None]] = (),
        clock: Callable[[], float] = time.monotonic,
    ):
        """Keeps what to call.

        Args:
          evaluate: Runs episodes and returns their result; training waits for it.
          train_step: Named in the log.
          interval: Train steps between evaluations; None or 0 with `seconds` set goes by time.
          seconds: Seconds between evaluations, counted from the start of each.
          target_return: Ask for the end of training when the mean return is at least this, and is
            so again in a second evaluation.
          observers: Called in order with each result, before the request to stop.
          clock: Returns seconds from a monotonic clock.
        """
        self._evaluate_fn = evaluate
        self._train_step = train_step
        self._target_return = target_return
        self._observers = tuple(observers)
        super().__init__(interval, self._evaluate, seconds=seconds, clock=clock)

    def _evaluate(self) -> None:
        result = self._evaluate_fn()
        logging.info(
            "Evaluation at train step %d: mean return %.2f ± %.2f over %d episodes.",
            self._train_step.numpy(),
            result.mean,
            result.std,
            result.episodes,
        )
        target = self._target_return
        if target is not None and result.mean >= target and result.confirmed is None:
            result = dataclasses.replace(result, confirmed=self._evaluate_fn())
        for observer in self._observers:
            observer(result)
        if target is not None and reaches(result, target):
            raise trigger_runner.StopTraining(how_reached(result, target))
        log_if_not_confirmed(result, target)


def how_reached(result: EvaluationResult, target_return: float) -> str:
    """Says by what a target was reached."""
    confirmed = result.confirmed
    return (
        f"mean return {result.mean:g} over {result.episodes} episodes reached the target "
        f"{target_return:g}, and {confirmed.mean:g} over {confirmed.episodes} others confirmed it"
    )


def log_if_not_confirmed(result: EvaluationResult, target_return: float | None) -> None:
    """Says in the log that a target seemed to be reached and was not."""
    if target_return is None or result.confirmed is None or not result.mean >= target_return:
        return
    logging.info(
        "Mean return %g over %d episodes would reach the target %g, but %g over %d others does "
        "not confirm it: the target is not reached, and training goes on.",
        result.mean,
        result.episodes,
        target_return,
        result.confirmed.mean,
        result.confirmed.episodes,
    )


class BestScore:
    """The highest score so far: what an evaluator knows of policies that others keep.

    An evaluation that is not finite, or whose confirmation is not, changes nothing.

    Args:
      target_return: A policy that is confirmed to reach this is better than one that is not.

    Attributes:
      best: The score; None before the first.
    """

    def __init__(self, target_return: float | None = None) -> None:
        self._target_return = target_return
        self.best: dict[str, Any] | None = None

    def would_keep(self, result: EvaluationResult) -> bool:
        """Whether the policy would be the best so far, judging by episodes that were played."""
        is_finite = result.is_finite and (result.confirmed is None or result.confirmed.is_finite)
        return is_finite and self.is_better(score_of(result))

    def is_better(self, score: Mapping[str, Any]) -> bool:
        """Whether a score is better than the best so far."""
        return supersedes(score, self.best, self._target_return)

    def __call__(self, result: EvaluationResult) -> None:
        """Keeps the score if it is better than the best so far."""
        if self.would_keep(result):
            self.keep(score_of(result))

    def keep(self, score: dict[str, Any]) -> None:
        """Keeps a score that `is_better`."""
        self.best = score
