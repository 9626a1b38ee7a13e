"""Marks a run as complete, so that a restarted learner does not train on."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from actor_learner import experiment as experiment_lib
from actor_learner.support import atomic, unsaved

FILE = "complete.json"


class DoneMarker:
    """Notes the train step at which training was complete, and by which settings.

    A learner that dies after its last train step, while evaluators rate the final version, is
    started again: it must not wait for actors which have ended. With other settings, of a run that
    is resumed for more steps or another target, training is not complete.

    Args:
      directory: The run directory.
      experiment: Its settings decide when training is complete.
    """

    def __init__(self, directory: pathlib.Path, experiment: experiment_lib.Experiment) -> None:
        self._path = directory / FILE
        self._settings = {
            "environment_steps": experiment.environment_steps,
            "target_return": experiment.evaluation.target_return,
        }

    def note(self, train_step: int, reason: str, *, failure: str | None = None) -> None:
        """Writes the note.

        Args:
          train_step: The last one.
          reason: Why training is complete.
          failure: What makes the run a failure all the same; None if nothing does.
        """
        note = {"train_step": train_step, "reason": reason, "failure": failure, **self._settings}

        def write() -> None:
            with atomic.replacing(self._path) as path:
                path.write_text(json.dumps(note))

        unsaved.ledger().attempt(FILE, write, where=self._path)

    def of(self, train_step: int) -> str | None:
        """Why training is complete at `train_step`; None if it is not."""
        note = self._read(train_step)
        return None if note is None else note["reason"]

    def failure_of(self, train_step: int) -> str | None:
        """What made the run a failure when training was complete at `train_step`; None if nothing.

        A learner that is started again does not hear of it once more from the evaluators.
        """
        note = self._read(train_step)
        return None if note is None else note.get("failure")

    def _read(self, train_step: int) -> dict[str, Any] | None:
        try:
            note = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        same = all(note[name] == value for name, value in self._settings.items())
        return note if same and note["train_step"] == train_step else None
