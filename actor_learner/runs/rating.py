"""The judging side of an experiment: evaluates the greedy policy and keeps the best one."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Callable

import tensorflow as tf
from absl import logging
from tf_agents.policies import tf_policy

from actor_learner import experiment as experiment_lib
from actor_learner.acting import evaluator
from actor_learner.learning import evaluation
from actor_learner.runs import evaluation_specs
from actor_learner.support import counters, errors, seeds


class Rating:
    """Evaluates a policy in environments of its own.

    Every evaluation plays the same episodes; those that confirm one are played once. See
    `Evaluation`.

    Args:
      experiment: Says in which environment, and over how many episodes.
      policy: Evaluated with its current variables, acting greedily.
      best: Keeps the best policy, or at least its score.
      seed: The run's seed, or one of it for each of several evaluators.
      life: Tells this process from others with that seed, which must confirm on other episodes.
      specs: Time step and action specs of the environment that is trained in.
      most_lanes: Lanes to evaluate in at most; None is the experiment's number.
      train_step: Version of the policy.
      environment_step: Environment steps taken for training by then.

    Attributes:
      best: As given.
      last: The latest evaluation; None before the first.
      target_reached: How the target was reached; None before.

    Raises:
      errors.SpecMismatchError: If the environment to evaluate in has other specs.
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
        most_lanes: int | None = None,
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
        lanes = {} if most_lanes is None else {"num_envs": most_lanes}
        env = experiment.make_evaluation_environment(
            seeds.of(seed, "evaluation environment", life), **lanes
        )
        self._closing.callback(env.close)
        try:
            evaluation_specs.require_same(env, *specs)
            self._evaluator = evaluator.Evaluator(
                env,
                experiment_lib.greedy(policy),
                self._settings.episodes,
                seed=seeds.of(seed, "choosing"),
            )
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
        """Runs the episodes, and others that confirm a best policy or a target; blocks meanwhile.

        Args:
          on_step: Called after each batched step; what it raises ends the evaluation.
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
        target = self._settings.target_return
        if evaluation.reaches(result, target):
            self.target_reached = evaluation.how_reached(result, target)
        else:
            evaluation.log_if_not_confirmed(result, target)

    def require_finite(self) -> None:
        """Refuses to call a run a success whose policy was last rated with something like NaN.

        Raises:
          errors.EvaluationError: Says what was found, and what to look at.
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
    """The score of the best policy as columns of metrics."""
    return {
        "best_return": score["mean"],
        "best_return_std": score["std"],
        "best_episodes": score["episodes"],
        "best_environment_steps": score["environment_step"],
    }


def not_finite(train_step: int, mean: float, episodes: int) -> errors.EvaluationError:
    """The error of a run whose last policy cannot be evaluated."""
    return errors.EvaluationError(
        f"the policy of train step {train_step} cannot be evaluated: its mean return over "
        f"{episodes} episodes is {mean:g}. Either its actions are not finite, because training "
        "diverged (look at `loss` in metrics.jsonl), or the environment gave a reward that is not "
        "(`actor-learner check-env` looks for it)"
    )
