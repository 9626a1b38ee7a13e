"""Tells how a learner's time divides into training, waiting for samples, and anything else.

A learner takes its samples inside a graph, where no clock is. So now and then it trains on a few
batches that it has taken beforehand: what a train step takes then is training, and the rest of what
train steps usually take is waiting for samples.
"""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

TRAINING, SAMPLING, WAITING = "training", "sampling", "waiting"

_BATCHES = 4
_FIRST_SECONDS = 60.0  # The first time a graph is built, which a short run need not pay for.
_EVERY_SECONDS = 60.0
_LEAST_SECONDS = 1.0  # Shares of less time are noise.


class _Seen(NamedTuple):
    at: float
    in_calls: float
    train_step: int


class TrainTiming:
    """Runs a learner, and measures it.

    Args:
      learner: A `Learner` with a dataset of its own.
      measures: Whether to train on batches taken beforehand at all; if not, sampling counts as
        training. A run that is to repeat itself must not: it would do so by the clock.
      clock: Seconds.
    """

    def __init__(
        self, learner: Any, *, measures: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._learner = learner
        self._clock = clock
        self._due_at = clock() + _FIRST_SECONDS if measures else float("inf")
        self._is_warm = False
        self._step_seconds: float | None = None
        self._before = self._seen()
        self._shares: dict[str, float] = {}

    def run(self, iterations: int) -> Any:
        """As `Learner.run`."""
        if self._clock() >= self._due_at:
            count = min(iterations, _BATCHES)
            taken = self._learner.take_batches(count)
            if taken is None:
                self._due_at = float("inf")
            else:
                loss_info = self._measure(count, taken)
                iterations -= count
                if not iterations:
                    return loss_info
        return self._learner.run(iterations=iterations)

    def _measure(self, count: int, taken: Any) -> Any:
        before = self._learner.train_seconds
        loss_info = self._learner.run(iterations=count, iterator=taken)
        seconds = (self._learner.train_seconds - before) / count
        if self._is_warm:
            self._step_seconds = seconds
        # The first time counted the building of a graph: it is done again at the next call.
        self._due_at = self._clock() + (_EVERY_SECONDS if self._is_warm else 0.0)
        self._is_warm = True
        return loss_info

    def shares(self) -> dict[str, float]:
        """Returns the shares of the last second or more; nothing before that has passed.

        `waiting` is all that happens outside of train steps: waiting for experience or for pacing,
        evaluations, checkpoints.
        """
        now, before = self._seen(), self._before
        wall = now.at - before.at
        if wall >= _LEAST_SECONDS:
            self._before = now
            in_calls = min(1.0, (now.in_calls - before.in_calls) / wall)
            shares = {TRAINING: in_calls}
            if self._step_seconds is not None:
                training = (now.train_step - before.train_step) * self._step_seconds / wall
                shares = {
                    TRAINING: min(in_calls, training),
                    SAMPLING: max(0.0, in_calls - training),
                }
            shares[WAITING] = 1.0 - in_calls
            self._shares = {kind: round(share, 4) for kind, share in shares.items()}
        return self._shares

    def _seen(self) -> _Seen:
        learner = self._learner
        return _Seen(self._clock(), learner.train_seconds, learner.last_step)
