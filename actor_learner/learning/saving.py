"""When a learner saves its checkpoint: at an interval, when asked, and before it fails."""

from __future__ import annotations

import contextlib
from typing import Callable

import tensorflow as tf
from absl import logging

from actor_learner.learning import checkpoints, interval_trigger
from actor_learner.support import unsaved


class Saving:
    """Saves the checkpoints of a learner.

    Args:
      checkpointer: Writes them.
      train_step: Names them.
      interval: Train steps between two; 0 or less saves none of its own accord.
      while_saving: Makes a context that each is saved in; if entering it raises, nothing is saved.
      directory: Where they go, for messages about a full disk.
      save: `Learner.save_checkpoint`, which calls `save_now` unless a subclass does otherwise.

    Attributes:
      trigger: Saves whenever the interval is over; None if it never does.
    """

    def __init__(
        self,
        checkpointer: checkpoints.Checkpointer,
        train_step: tf.Variable,
        interval: int,
        *,
        while_saving: Callable[[], contextlib.AbstractContextManager],
        directory: str,
        save: Callable[[], str | None],
    ) -> None:
        self._checkpointer = checkpointer
        self._train_step = train_step
        self._interval = interval
        self._while_saving = while_saving
        self._directory = directory
        self._save = save
        self.trigger: interval_trigger.IntervalTrigger | None = None
        if interval > 0:
            self.trigger = interval_trigger.IntervalTrigger(
                interval, save, start=train_step.numpy()
            )
        else:
            logging.warning(
                "checkpoint_interval=%d: no checkpoint is saved on the way; if this process dies, "
                "its training is lost.",
                interval,
            )

    def save_now(self) -> str | None:
        """Saves one now; returns its path prefix, or None on a full disk."""
        return unsaved.ledger().attempt("the checkpoint", self._write, where=self._directory)

    def save_after_failure(self) -> str:
        """Saves one if any are to be saved; returns a clause that says what became of it."""
        if self._interval <= 0:
            return f"no checkpoint was saved (checkpoint_interval={self._interval})"
        return checkpoints.saved_in_words(self._save)

    def _write(self) -> str | None:
        with self._while_saving():
            return self._checkpointer.save(self._train_step)
