"""What the learner makes of the evaluators' messages: rows, the best policy, a reason to end."""

from __future__ import annotations

import collections
from typing import Any, Callable

from absl import logging

from actor_learner import errors
from actor_learner.jobs import best_policy, mailbox


class Evaluations:
    """Takes results out of the evaluators' mailbox, each once.

    Args:
      receiver: Of the mailbox.
      keeper: Keeps the best of the policies that evaluators have sent.
      on_row: Takes a line of metrics per result.
      seconds: Returns the run's clock.
      target_return: The mean return to be reached; None for none.

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
        self._taken: set[tuple[int, str, int]] = set()
        self._raters: dict[int, set[int]] = collections.defaultdict(set)
        # An earlier learner may have left some.
        self.candidates_wait = True
        self.target_reached: str | None = None

    def take(self) -> None:
        """Takes in what has come since the last call; does not wait for more."""
        for result in self._receiver.receive():
            # An evaluator that is restarted may rate a version anew.
            key = (result["evaluator"], result["incarnation"], result["train_step"])
            if key in self._taken:
                continue  # A restored replay sends what it had once more.
            self._taken.add(key)
            self._raters[result["train_step"]].add(result["evaluator"])
            self._take(result)
        if self.candidates_wait:
            try:
                self._keeper.take()
                self.candidates_wait = False
            except errors.ReplayTimeoutError as error:
                logging.warning("What evaluators rate best is not kept yet: %s", error)

    def raters(self, version: int) -> set[int]:
        """The evaluators whose result of this version has come, by index."""
        return set(self._raters.get(version, ()))

    def _take(self, result: dict[str, Any]) -> None:
        self._on_row(
            {
                "seconds": round(self._seconds(), 3),
                "environment_steps": result["environment_step"],
                "train_steps": result["train_step"],
                "eval_return": result["mean"],
                "eval_return_std": result["std"],
                "eval_episodes": result["episodes"],
            }
        )
        # Sent before its message, so that it is kept before a target reached ends training.
        self.candidates_wait = self.candidates_wait or result["sent"]
        if self._target_return is not None and result["mean"] >= self._target_return:
            self.target_reached = (
                f"mean return {result['mean']:g} over {result['episodes']} episodes"
            )
