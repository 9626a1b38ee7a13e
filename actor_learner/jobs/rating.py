"""The judging side of an experiment: evaluates the greedy policy and keeps the best one."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import tensorflow as tf
from tf_agents.policies import tf_policy

from actor_learner import experiment as experiment_lib
from actor_learner.acting import evaluator
from actor_learner.learning import evaluation


class Rating:
    """Evaluates a policy in environments of its own.

    Args:
      experiment: Says in which environment, and over how many episodes.
      policy: Evaluated with its current variables, acting greedily.
      best_dir: Where the best policy is kept.
      seed: The run's seed.
      most_lanes: Lanes to evaluate in at most; None is the experiment's number.
      train_step: Version of the policy.
      environment_step: Environment steps taken for training by then.

    Attributes:
      environment: The one that it evaluates in; owned by this object.
      best: Keeps the best policy.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        policy: tf_policy.TFPolicy,
        best_dir: str,
        *,
        seed: int,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        most_lanes: int | None = None,
    ) -> None:
        self._experiment = experiment
        self._train_step = train_step
        self._environment_step = environment_step
        self._closing = contextlib.ExitStack()
        self.evaluated_at: int | None = None
        self.target_reached: str | None = None
        policy = experiment_lib.greedy(policy)
        lanes = {} if most_lanes is None else {"num_envs": most_lanes}
        self.environment = experiment.make_evaluation_environment(seed, **lanes)
        self._closing.callback(self.environment.close)
        self._evaluator = evaluator.Evaluator(
            self.environment,
            policy,
            experiment.evaluation_episodes,
            seed=seed + experiment_lib.EVALUATION_SEED_OFFSET,
        )
        self.best = evaluation.BestPolicyTrigger(policy, best_dir, train_step=train_step)

    @property
    def best_row(self) -> dict[str, Any] | None:
        """The evaluation of the best policy so far, as a line of metrics; None before the first."""
        score = self.best.best
        if score is None:
            return None
        return {
            "environment_steps": score["environment_step"],
            "train_steps": score["train_step"],
            "eval_return": score["mean"],
            "eval_return_std": score["std"],
            "eval_episodes": score["episodes"],
        }

    def evaluate(self, on_step: Callable[[], None] | None = None) -> evaluation.EvaluationResult:
        """Runs the episodes; blocks meanwhile.

        Args:
          on_step: Called after each batched step; what it raises ends the evaluation.
        """
        episodes = self._evaluator.run(on_step=on_step)
        self.evaluated_at = int(self._train_step.numpy())
        return evaluation.EvaluationResult(
            train_step=self.evaluated_at,
            environment_step=int(self._environment_step.numpy()),
            returns=episodes.returns,
            lengths=episodes.lengths,
        )

    def note(self, result: evaluation.EvaluationResult) -> None:
        """Keeps the policy if it is the best so far, and notes whether the target is reached."""
        self.best(result)
        target = self._experiment.target_return
        if target is not None and result.mean >= target:
            self.target_reached = (
                f"mean return {result.mean:g} over {result.episodes} episodes, {target:g} asked for"
            )

    def close(self) -> None:
        """Closes the environment; safe to call twice."""
        self._closing.close()
