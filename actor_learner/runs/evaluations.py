"""What the learner makes of the evaluators' messages: rows, the best policy, a reason to end."""

from __future__ import annotations

import math
from typing import Any, Callable

from absl import logging

from actor_learner.jobs import mailbox
from actor_learner.learning import evaluation
from actor_learner.runs import best_policy, rating
from actor_learner.support import errors, unsaved

# What a restored replay may send once more is some minutes old, a few hundred results at most.
_REMEMBERED_RESULTS = 10_000
# Who has rated it is asked of the final version only, which is among the latest to be rated.
_REMEMBERED_VERSIONS = 100


class Evaluations:
    """Takes results out of the evaluators' mailbox, each once.

    Args:
      receiver: Of the mailbox.
      keeper: Keeps the best of the policies that evaluators have sent.
      on_row: Takes a line of metrics per result.
      seconds: Returns the run's clock.
      target_return: The mean return to be reached, and confirmed; None for none.

    Attributes:
      target_reached: How the target was reached; None before.
      candidates_wait: Whether there may be a policy, better than the best, that is not kept yet.
    """

    def __init__(
        self,
        receiver: mailbox.Receiver,
        keeper: best_policy.Keeper,
        *,
        on_row: Callable[[dict[str, Any]], None],
        seconds: Callable[[], float],
        target_return: float | None,
    ) -> None:
        self._receiver = receiver
        self._keeper = keeper
        self._on_row = on_row
        self._seconds = seconds
        self._target_return = target_return
        # Both in the order of arrival; the oldest make room.
        self._taken: dict[tuple[int, str, int], None] = {}
        self._raters: dict[int, set[int]] = {}
        self._not_finite: dict[int, errors.EvaluationError] = {}
        # An earlier learner may have left some.
        self.candidates_wait = True
        self.target_reached: str | None = None

    def take(self) -> None:
        """Takes in what has come since the last call; does not wait for more."""
        taken = []
        for result in self._receiver.receive():
            # An evaluator that is restarted may rate a version again.
            key = (result["evaluator"], result["incarnation"], result["train_step"])
            if key in self._taken:
                continue  # A restored replay sends what it had once more.
            self._taken[key] = None
            _keep_latest(self._taken, _REMEMBERED_RESULTS)
            # Sent before its message, so that it is kept before a target reached ends training.
            self.candidates_wait = self.candidates_wait or result["sent"]
            taken.append(result)
        if self.candidates_wait:
            # On a full disk they wait on, in the replay server.
            unsaved.ledger().attempt(
                evaluation.BEST_POLICY,
                self._keep_candidates,
                where=self._keeper.directory,
                if_due=True,
            )
        for result in taken:
            self._raters.setdefault(result["train_step"], set()).add(result["evaluator"])
            _keep_latest(self._raters, _REMEMBERED_VERSIONS)
            self._take(result)

    def _keep_candidates(self) -> Any:
        try:
            self._keeper.take()
        except errors.ReplayTimeoutError as error:
            logging.warning("What evaluators rate best is not kept yet: %s", error)
            return unsaved.LATER
        self.candidates_wait = False
        return None

    def raters(self, version: int) -> set[int]:
        """The evaluators whose result of this version has come, by index."""
        return set(self._raters.get(version, ()))

    def require_finite(self, version: int) -> None:
        """Refuses to call a run a success whose final version was rated with something like NaN.

        Raises:
          errors.EvaluationError: If any evaluator has found that.
        """
        if version in self._not_finite:
            raise self._not_finite[version]

    def _take(self, result: dict[str, Any]) -> None:
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
                "target is not reached, and training goes on.",
                result["evaluator"],
                rated,
                target,
                again,
            )


def _keep_latest(remembered: dict[Any, Any], most: int) -> None:
    while len(remembered) > most:
        del remembered[next(iter(remembered))]
