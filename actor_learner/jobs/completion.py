"""That training is complete, noted where a learner which is started again will find it."""

from __future__ import annotations

import json
import pathlib

from actor_learner import experiment as experiment_lib
from actor_learner.reporting import atomic

FILE = "complete.json"


class Completion:
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
            "target_return": experiment.target_return,
        }

    def note(self, train_step: int, reason: str) -> None:
        """Writes the note."""
        note = {"train_step": train_step, "reason": reason, **self._settings}
        with atomic.replacing(self._path) as path:
            path.write_text(json.dumps(note))

    def of(self, train_step: int) -> str | None:
        """Why training is complete at `train_step`; None if it is not."""
        try:
            note = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        same = all(note[name] == value for name, value in self._settings.items())
        return note["reason"] if same and note["train_step"] == train_step else None
