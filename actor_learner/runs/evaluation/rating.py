"""Evaluates the greedy policy of an experiment, and notes the best one and the target."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import Any, Callable

import tensorflow as tf
from absl import logging
from tf_agents.policies import tf_policy

from actor_learner import experiment as experiment_lib
from actor_learner.acting import evaluator
from actor_learner.learning import evaluation
from actor_learner.runs.evaluation import environment_specs, pictures
from actor_learner.support import counters, errors, seeds


class Rating:
    """Evaluates a policy in its own environment.

    Every evaluation plays the same episodes; each confirmation plays new ones. See `Evaluation`.

    Args:
      experiment: Its `Evaluation` says in which environment, and over how many episodes.
      policy: Evaluated with its current variables, acting greedily.
      best: Keeps the best policy, or at least its score.
      seed: The run's seed, or one derived from it for each of several evaluators.
      life: Distinguishes this process from others with the same seed, so that each confirms on
        other episodes.
      specs: Time step and action specs of the training environment.
      directory: The run directory, for the pictures that `Reporting` asks for; None writes none.
      max_lanes: Maximum lanes of the evaluation; None for the experiment's number.
      train_step: Version of the policy.
      environment_step: Environment steps of training up to that version.
      furnish: Called with the environment that was made, to install policies of other agents.

    Attributes:
      best: The argument.
      last: The latest evaluation; None before the first.
      target_reached: How the target was reached; None before.

    Raises:
      errors.SpecMismatchError: If the specs of the evaluation environment differ.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        policy: tf_policy.TFPolicy,
        best: evaluation.BestScore,
        *,
        seed: int,
        life: int | str,
        specs: tuple[Any, Any],
        train_step: tf.Variable,
        environment_step: tf.Variable,
        max_lanes: int | None = None,
        directory: pathlib.Path | None = None,
        furnish: Callable[[Any], None] = lambda env: None,
    ) -> None:
        self._settings = experiment.evaluation
        self.best = best
        self._seed = seed
        self._life = life
        self._confirmations = 0
        self._train_step = train_step
        self._environment_step = environment_step
        self._closing = contextlib.ExitStack()
        self.last: evaluation.EvaluationResult | None = None
        self.target_reached: str | None = None
        self._pictures: pictures.EvaluationPictures | None = None
        lanes = {} if max_lanes is None else {"num_envs": max_lanes}
        env = experiment.make_evaluation_environment(
            seeds.of(seed, "evaluation environment", life), **lanes
        )
        self._closing.callback(env.close)
        try:
            environment_specs.require_same(env, *specs)
            furnish(env)
            self._evaluator = evaluator.Evaluator(
                env,
                experiment_lib.greedy(policy),
                self._settings.episodes,
                seed=seeds.of(seed, "choosing"),
            )
            reporting = experiment.reporting
            if directory is not None and (reporting.histograms or reporting.videos):
                self._pictures = pictures.EvaluationPictures(
                    experiment,
                    experiment_lib.greedy(policy),
                    env,
                    directory,
                    seeds.of(seed, "film"),
                )
                self._closing.callback(self._pictures.close)
        except BaseException:
            self._closing.close()
            raise

    @property
    def evaluated_at(self) -> int | None:
        """Train step of the policy that was evaluated last; None before the first."""
        return None if self.last is None else self.last.train_step

    @property
    def best_row(self) -> dict[str, Any] | None:
        """The score of the best policy so far, as columns of metrics; None before the first."""
        return None if self.best.best is None else best_columns(self.best.best)

    def evaluate(self, on_step: Callable[[], None] | None = None) -> evaluation.EvaluationResult:
        """Plays the episodes, and new ones to confirm a best policy or a target; blocks until done.

        Args:
          on_step: Called after each batched step; an exception that it raises ends the evaluation.
        """
        result = self._run(on_step, None)
        target = self._settings.target_return
        if not result.is_finite:
            logging.warning(
                "Evaluation at train step %d is not finite: mean return %g over %d episodes. It "
                "does not count.",
                result.train_step,
                result.mean,
                result.episodes,
            )
        elif self.best.would_keep(result) or (target is not None and result.mean >= target):
            self._confirmations += 1
            fresh = seeds.of(self._seed, "confirming", self._life, self._confirmations)
            result = dataclasses.replace(result, confirmed=self._run(on_step, fresh))
        self.last = result
        return result

    def note(self, result: evaluation.EvaluationResult) -> None:
        """Keeps the policy if it is the best so far, and notes whether the target is reached."""
        self.best(result)
        if self._pictures is not None:
            self._pictures.write(result)
        target = self._settings.target_return
        if evaluation.reaches(result, target):
            self.target_reached = evaluation.how_reached(result, target)
        else:
            evaluation.log_if_not_confirmed(result, target)

    def require_finite(self) -> None:
        """Checks that the returns of the latest evaluation were finite.

        Raises:
          errors.EvaluationError: If they were not.
        """
        if self.last is not None and not self.last.is_finite:
            raise not_finite(self.last.train_step, self.last.mean, self.last.episodes)

    def close(self) -> None:
        """Closes the environment; safe to call twice."""
        self._closing.close()

    def _run(
        self, on_step: Callable[[], None] | None, seed: int | None
    ) -> evaluation.EvaluationResult:
        episodes = self._evaluator.run(on_step, seed=seed)
        return evaluation.EvaluationResult(
            train_step=int(counters.read(self._train_step)),
            environment_step=int(counters.read(self._environment_step)),
            returns=episodes.returns,
            lengths=episodes.lengths,
        )


def best_columns(score: dict[str, Any]) -> dict[str, Any]:
    """Converts the score of the best policy to columns of metrics."""
    return {
        "best_return": score["mean"],
        "best_return_std": score["std"],
        "best_episodes": score["episodes"],
        "best_environment_steps": score["environment_step"],
    }


def not_finite(train_step: int, mean: float, episodes: int) -> errors.EvaluationError:
    """Makes the error of a run whose last policy cannot be evaluated."""
    return errors.EvaluationError(
        f"the policy of train step {train_step} cannot be evaluated: its mean return over "
        f"{episodes} episodes is {mean:g}. Either its actions are not finite, because training "
        "diverged (look at `loss` in metrics.jsonl), or the environment gave a reward that is not "
        "(`actor-learner check-env` looks for it)"
    )
