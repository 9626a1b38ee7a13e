"""Turns evaluators' results into rows of metrics, the best policy and a reason to end."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
from absl import logging

from actor_learner.learning import evaluation
from actor_learner.runs.evaluation import best_policy, rating
from actor_learner.support import errors

# An evaluator repeats a result only until it is answered.
_REMEMBERED_RESULTS = 10_000
# Only the raters of the final version are asked for, and it is among the latest to be rated.
_REMEMBERED_VERSIONS = 100


class Evaluations:
    """Takes each result of the evaluators once.

    Args:
      keeper: Keeps the best of the policies that evaluators have sent.
      on_row: Takes a line of metrics per result.
      seconds: Returns the run's clock.
      target_return: The mean return to be reached and confirmed; None for no target.

    Attributes:
      target_reached: How the target was reached; None before.
    """

    def __init__(
        self,
        keeper: best_policy.BestPolicyKeeper,
        *,
        on_row: Callable[[dict[str, Any]], None],
        seconds: Callable[[], float],
        target_return: float | None,
    ) -> None:
        self._keeper = keeper
        self._on_row = on_row
        self._seconds = seconds
        self._target_return = target_return
        # Both in the order of arrival; the oldest are forgotten first.
        self._taken: dict[tuple[int, str, int], None] = {}
        self._raters: dict[int, set[int]] = {}
        self._not_finite: dict[int, errors.EvaluationError] = {}
        self.target_reached: str | None = None

    def take(self, result: dict[str, Any], packed: np.ndarray | None = None) -> None:
        """Takes a result; a repeated one changes nothing.

        Args:
          result: The evaluator's result.
          packed: The variables of the policy, if it is the best that this evaluator has rated.
        """
        # An evaluator that is restarted may rate a version again.
        key = (result["evaluator"], result["incarnation"], result["train_step"])
        if key in self._taken:
            return
        if packed is not None:
            # First, so that the policy is kept before a target that it reaches ends training.
            self._keep(result, packed)
        self._taken[key] = None
        _keep_latest(self._taken, _REMEMBERED_RESULTS)
        self._raters.setdefault(result["train_step"], set()).add(result["evaluator"])
        _keep_latest(self._raters, _REMEMBERED_VERSIONS)
        self._note(result)

    def _keep(self, result: dict[str, Any], packed: np.ndarray) -> None:
        figures = {name: result[name] for name in ("mean", "std", "min", "max", "episodes")}
        score = dict(
            result["confirmed"] or figures,
            train_step=result["train_step"],
            environment_step=result["environment_step"],
        )
        if result["confirmed"] is not None:
            score[evaluation.CHOSEN_BY] = figures
        try:
            self._keeper.take(score, packed)
        except (ValueError, errors.NotFiniteError) as error:
            logging.error(
                "evaluator-%d sent a policy that is refused: %s", result["evaluator"], error
            )

    def raters(self, version: int) -> set[int]:
        """Returns the indices of the evaluators that have rated this version."""
        return set(self._raters.get(version, ()))

    def require_finite(self, version: int) -> None:
        """Checks that no evaluator has found returns of this version that are not finite.

        Raises:
          errors.EvaluationError: If one has.
        """
        if version in self._not_finite:
            raise self._not_finite[version]

    def _note(self, result: dict[str, Any]) -> None:
        best = self._keeper.best
        self._on_row(
            {
                "seconds": round(self._seconds(), 3),
                "environment_steps": result["environment_step"],
                "train_steps": result["train_step"],
                "eval_return": result["mean"],
                "eval_return_std": result["std"],
                "eval_episodes": result["episodes"],
                **({} if best is None else rating.best_columns(best)),
            }
        )
        is_finite = math.isfinite(result["std"])
        if not is_finite:
            self._not_finite[result["train_step"]] = rating.not_finite(
                result["train_step"], result["mean"], result["episodes"]
            )
            _keep_latest(self._not_finite, _REMEMBERED_VERSIONS)
        target, confirmed = self._target_return, result["confirmed"]
        if target is None or confirmed is None or not is_finite or result["mean"] < target:
            return
        rated = f"mean return {result['mean']:g} over {result['episodes']} episodes"
        again = f"{confirmed['mean']:g} over {confirmed['episodes']} others"
        if confirmed["mean"] >= target and math.isfinite(confirmed["std"]):
            self.target_reached = f"{rated}, and {again} confirmed it"
        else:
            logging.info(
                "evaluator-%d: %s would reach the target %g, but %s does not confirm it: the "
                "target is not reached, and training continues.",
                result["evaluator"],
                rated,
                target,
                again,
            )


def _keep_latest(remembered: dict[Any, Any], max_entries: int) -> None:
    while len(remembered) > max_entries:
        del remembered[next(iter(remembered))]
