"""Evaluation during training: when, what its result is, and the best policy seen so far."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging
from tf_agents.policies import policy_saver, tf_policy

from actor_learner import configurable
from actor_learner.learning import interval_trigger, trigger_runner

POLICY_DIR = "policy"
SCORE_FILE = "score.json"
NEW, _OLD = ".new", ".old"


@dataclasses.dataclass(frozen=True, eq=False)
class EvaluationResult:
    """The episodes of one evaluation and when it took place.

    Attributes:
      train_step: Train step of the evaluated policy.
      environment_step: Environment steps collected for training by then, over all lanes.
      returns: Undiscounted return of each episode, `[episodes]`.
      lengths: Steps of each episode, `[episodes]`.
    """

    train_step: int
    environment_step: int
    returns: np.ndarray
    lengths: np.ndarray

    def __post_init__(self):
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
        return float(np.std(self.returns))

    @property
    def min(self) -> float:
        """Lowest return."""
        return float(np.min(self.returns))

    @property
    def max(self) -> float:
        """Highest return."""
        return float(np.max(self.returns))


@configurable.register
class EvaluationTrigger(interval_trigger.IntervalTrigger):
    """Evaluates when due, tells observers, and asks to stop once a target return is reached."""

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
          target_return: Ask for the end of training when the mean return is at least this.
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
        for observer in self._observers:
            observer(result)
        if self._target_return is not None and result.mean >= self._target_return:
            raise trigger_runner.StopTraining(
                f"mean return {result.mean:g} over {result.episodes} episodes "
                f"reached the target {self._target_return:g}"
            )


@configurable.register
class BestPolicyTrigger:
    """Keeps the policy with the highest mean return: an observer of an `EvaluationTrigger`.

    `<directory>/policy` is the SavedModel and `<directory>/score.json` its score; the directory
    belongs to this class and holds nothing else. Both are written to `<directory>.new` and change
    place together, by renaming, so that policy and score always belong together. A process killed
    between two renames leaves a complete `.new` or `.old` beside it, which `read_best_score` (and
    so the next construction) puts in place.
    """

    def __init__(self, policy: tf_policy.TFPolicy, directory: str, *, train_step: tf.Variable):
        """Reads the score that an earlier run left; writes nothing.

        Args:
          policy: The policy that is evaluated, usually the greedy one.
          directory: Usually `<run>/best`; a local path.
          train_step: Saved with the policy.

        Raises:
          ValueError: If `directory` holds anything but a best policy.
        """
        self._directory = os.fspath(directory).rstrip(os.sep)
        self._policy = policy
        self._train_step = train_step
        self._saver: policy_saver.PolicySaver | None = None
        self._graph_written = False
        _refuse_foreign_files(self._directory)
        self.best: dict[str, Any] | None = read_best_score(self._directory)

    def __call__(self, result: EvaluationResult) -> None:
        """Saves the policy as it is now if `result` is strictly better than the best so far."""
        if self.best is not None and not result.mean > self.best["mean"]:
            return
        score = dict(
            mean=result.mean,
            std=result.std,
            min=result.min,
            max=result.max,
            episodes=result.episodes,
            train_step=int(result.train_step),
            environment_step=int(result.environment_step),
        )
        new = self._directory + NEW
        shutil.rmtree(new, ignore_errors=True)
        self._save_policy(os.path.join(new, POLICY_DIR))
        # Last of all: its presence says that the directory is complete.
        with open(os.path.join(new, SCORE_FILE + ".part"), "w") as file:
            json.dump(score, file, indent=2)
            file.write("\n")
        os.replace(file.name, os.path.join(new, SCORE_FILE))
        put_in_place(self._directory)
        self.best = score
        self._graph_written = True
        logging.info(
            "Best policy so far: mean return %.2f at train step %d, in %s.",
            result.mean,
            result.train_step,
            self._directory,
        )

    def _save_policy(self, path: str) -> None:
        if self._saver is None:
            self._saver = policy_saver.PolicySaver(
                self._policy, batch_size=None, train_step=self._train_step
            )
        if not self._graph_written:
            self._saver.save(path)
            return
        # The graph does not change between bests: writing the variables alone is 20 times faster.
        shutil.copytree(
            os.path.join(self._directory, POLICY_DIR),
            path,
            ignore=shutil.ignore_patterns(tf.saved_model.VARIABLES_DIRECTORY),
        )
        self._saver.save_checkpoint(path)


def put_in_place(directory: str) -> None:
    """Makes `<directory>.new`, which must be complete, the best policy, and removes the former."""
    new, old = directory + NEW, directory + _OLD
    shutil.rmtree(old, ignore_errors=True)
    if os.path.isdir(directory):
        os.rename(directory, old)
    os.rename(new, directory)
    shutil.rmtree(old, ignore_errors=True)


def read_best_score(directory: str) -> dict[str, Any] | None:
    """The score of the best policy in `directory`, after completing an interrupted replacement.

    Returns:
      mean, std, min, max, episodes, train_step, environment_step; None if there is no best yet.
    """
    directory = os.fspath(directory).rstrip(os.sep)
    score = _read_score(directory)
    for candidate in (directory + NEW, directory + _OLD):
        if score is None:
            score = _read_score(candidate)
            if score is not None:
                shutil.rmtree(directory, ignore_errors=True)
                os.rename(candidate, directory)
    return score


def _read_score(directory: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(directory, SCORE_FILE)) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def _refuse_foreign_files(directory: str) -> None:
    found = set(os.listdir(directory)) if os.path.isdir(directory) else set()
    foreign = sorted(found - {POLICY_DIR, SCORE_FILE})
    if foreign:
        raise ValueError(
            f"{directory} is to hold the best policy and is replaced as a whole, but it contains "
            f"{', '.join(foreign)}: choose another directory"
        )
