"""What a learner does about a train step whose loss or gradient is not finite: stop, or skip it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.support import errors, finite

STOP, SKIP = "stop", "skip"

# TensorFlow has no error of its own for this, only for arguments of any kind that are not valid.
_CHECK_FAILED = re.compile(r"([^\n]*?)[ .:]*: Tensor had ([-+A-Za-z ]+) values")
_SHOWN = ("reward", "observation", "target")

_ADVICE = (
    "To try: a lower learning rate, gradient_clipping, a smaller reward_scale or reward_clipping. "
    "If rewards or observations are not finite, or far too large, look at the environment: "
    "actor-learner check-env. Learner.when_not_finite = 'skip' leaves such steps out; what is in "
    "the replay stays there."
)


def reason(error: tf.errors.InvalidArgumentError) -> str | None:
    """What a check found not to be finite, as a clause; None if the error is another one."""
    found = _CHECK_FAILED.search(str(error))
    if found is None:
        return None
    what = re.sub(r"\{\{.*?\}\}", "", found[1])  # The function that it was found in.
    return f"{what.strip()} ({found[2].strip()})"


def describe_batch(batch: Mapping[str, np.ndarray]) -> str:
    """The ranges of reward, observation and target in a batch, and of what else is not finite."""
    lines = []
    for name, values in batch.items():
        if values.dtype.kind not in "biufV":
            continue
        shown = any(part.split("#")[0] in _SHOWN for part in name.split("/"))
        if shown or not finite.is_finite(values):
            lines.append(f"\n  {name}: {finite.describe(values)}")
    return "In that batch:" + "".join(lines) if lines else "Of that batch nothing is known."


class NotFinitePolicy:
    """Decides what becomes of train steps that were not applied, and counts them.

    Args:
      when_not_finite: `STOP` or `SKIP`.
      max_skipped_in_a_row: Steps in a row that may be left out; one more is an error.

    Attributes:
      skipped: Train steps that were left out.

    Raises:
      ValueError: If an argument is not one of these.
    """

    def __init__(self, when_not_finite: str, max_skipped_in_a_row: int) -> None:
        if when_not_finite not in (STOP, SKIP):
            raise ValueError(
                f"Learner.when_not_finite must be '{STOP}' or '{SKIP}', got {when_not_finite!r}"
            )
        if max_skipped_in_a_row < 1:
            raise ValueError(
                f"Learner.max_skipped_in_a_row must be at least 1, got {max_skipped_in_a_row}"
            )
        self.skips = when_not_finite == SKIP
        self.skipped = 0
        self._max_in_a_row = max_skipped_in_a_row
        self._in_a_row = 0

    def note_made(self, steps: int) -> None:
        """Notes train steps that were made since the last one that was not."""
        if steps:
            self._in_a_row = 0

    def leave_out(
        self,
        why: str,
        train_step: int,
        batch: Mapping[str, np.ndarray],
        weights: Any,
    ) -> str | None:
        """Counts a step that was not applied.

        Args:
          why: What was not finite.
          train_step: The train step that it would have followed.
          batch: What it was to learn from.
          weights: The agent's variables.

        Returns:
          None if training is to go on; else what to say, without what was saved.
        """
        poisoned = finite.first_not_finite((v.name, v) for v in weights)
        told = f"{why} at train step {train_step}. It was not applied. "
        told += describe_batch(batch)
        if poisoned is not None:
            told += (
                f"\nThe agent itself is not finite: {poisoned}. It is not saved; resume from an "
                "earlier checkpoint"
            )
        if self.skips and poisoned is None and self._in_a_row < self._max_in_a_row:
            self._in_a_row += 1
            self.skipped += 1
            logging.warning("A train step is skipped, %d so far: %s", self.skipped, told)
            return None
        if self.skips and poisoned is None:
            told += f"\n{self._in_a_row} train steps in a row were skipped before it, the most "
            told += "that Learner.max_skipped_in_a_row allows"
        return told


def error(told: str, saved: str) -> errors.NotFiniteError:
    """The error that ends training."""
    return errors.NotFiniteError(f"Training has diverged: {told}\nIt stopped; {saved}.\n{_ADVICE}")
