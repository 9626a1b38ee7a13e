"""Evaluates the policy of a run in one process, at intervals and at its end."""

from __future__ import annotations

import threading
from typing import Any, Callable

import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner import run_directory
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.learning import best_policy_trigger, evaluation
from actor_learner.learning import triggers as triggers_lib
from actor_learner.runs import learning_side
from actor_learner.runs.evaluation import rating


class RunEvaluation:
    """Rates the policy while it is trained, and writes the results as lines of metrics.

    Training ends when the target is reached; `stop` ends an evaluation that is under way.

    Args:
      experiment: Its `Evaluation` says in which environment, how often and over how many episodes.
      plan: The plan of the experiment.
      algorithm: Its agent's policy is rated.
      env: The environment to collect in; None if nothing is collected.
      run: The run directory, for the best policy.
      learning: The learning side, which calls the evaluations and writes their rows.
      seed: Seed of the run.
      life: As in `rating.Rating`.
      train_step: Counts train steps.
      environment_step: Counts environment steps.
      stop: Set when training is to end.
      furnish: As in `rating.Rating`.

    Attributes:
      rating: Holds the results.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        env: Any,
        run: run_directory.RunDirectory,
        learning: learning_side.LearningSide,
        *,
        seed: int,
        life: int,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        stop: threading.Event,
        furnish: Callable[[Any], None],
    ) -> None:
        self._learning = learning
        self._stop = stop
        settings = experiment.evaluation
        # With a process per lane, one lane per episode would be too many processes.
        few = getattr(env, "vectorization", None) == "async"
        policy = experiment_lib.greedy(algorithm.agent.policy)
        self.rating = rating.Rating(
            experiment,
            policy,
            best_policy_trigger.BestPolicyTrigger(
                policy,
                str(run.best),
                train_step=train_step,
                target_return=settings.target_return,
            ),
            seed=seed,
            life=life,
            specs=(
                experiment.offline_specs()
                if env is None
                else (env.time_step_spec(), env.action_spec())
            ),
            train_step=train_step,
            environment_step=environment_step,
            directory=run.path,
            max_lanes=min(plan.num_lanes, settings.episodes) if few else None,
            furnish=furnish,
        )
        # The interval is in environment steps, or in train steps if there are none.
        ratio = 1.0 if experiment.is_offline else plan.updates_per_step
        interval = round(settings.interval * ratio)
        learning.trainer.learner.add_trigger(
            evaluation.EvaluationTrigger(
                lambda: self.rating.evaluate(on_step=self._give_up_if_asked),
                train_step,
                max(1, interval) if settings.interval else 0,
                observers=[self.rating.note, self._report, self._stop_if_reached],
            )
        )

    def finish(self) -> None:
        """Evaluates the final policy, unless the last interval has."""
        if self.rating.evaluated_at == self._learning.train_step:
            return
        try:
            result = self.rating.evaluate(on_step=self._give_up_if_asked)
        except triggers_lib.StopTraining:
            return  # Interrupted meanwhile; everything is saved.
        self.rating.note(result)
        self._report(result)
        # Includes the time of this evaluation: the clock of a resumed run must not go back.
        self._learning.save()

    def close(self) -> None:
        """Closes the evaluation environment."""
        self.rating.close()

    def _give_up_if_asked(self) -> None:
        if self._stop.is_set():
            raise triggers_lib.StopTraining("interrupted during an evaluation")

    def _stop_if_reached(self, result: evaluation.EvaluationResult) -> None:
        if self.rating.target_reached is not None:
            raise triggers_lib.StopTraining(self.rating.target_reached)

    def _report(self, result: evaluation.EvaluationResult) -> None:
        self._learning.write_row(
            eval_return=result.mean,
            eval_return_std=result.std,
            eval_episodes=result.episodes,
            **(self.rating.best_row or {}),
        )
