"""Keeps an actor's counts where they outlive its process, which may be killed before it reports."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from tf_agents.trajectories import time_step as ts

from actor_learner.jobs.workers import journal_files

FOLDER = "steps"
MAX_EARLIER = journal_files.MAX_EARLIER

_COUNTS = struct.Struct("=qq")  # Steps, episodes.


class EarlierProcess(NamedTuple):
    """What an earlier process of the same actor has done, whether or not it has reported it.

    Attributes:
      incarnation: Which one it was.
      steps: Environment steps that it took.
      episodes: Episodes that ended in it.
    """

    incarnation: str
    steps: int
    episodes: int


class StepJournal:
    """Counts steps and episodes in a file, as the first observer of an actor's transitions.

    What is written survives `kill -9`. It is not mapped: a store into a mapping ends the process
    when the disk is full, if the file system copies on write. The successor of a killed process
    finds the counts and reports them in its name; reports hold totals, so that what the learner has
    counted already counts once. What has reached the replay is counted here before; a step that the
    environment was just taking when its process was killed is part of neither.

    Args:
      directory: The job's own; None where there is none: then nothing outlives the process.
      incarnation: Of this process.
      folder: Below the directory; others than the first are for further policies of a world.

    Attributes:
      earlier: The latest processes of this actor, the oldest first.
    """

    def __init__(
        self, directory: pathlib.Path | None, incarnation: str, folder: str = FOLDER
    ) -> None:
        self._steps = self._episodes = 0
        self._file, files = journal_files.begin(directory, folder, incarnation, "Steps")
        self.earlier = [
            EarlierProcess(left.incarnation, *_COUNTS.unpack(left.content))
            for left in files
            if _is_sound(left)
        ]

    def __call__(self, transition: tuple[Any, Any, Any]) -> None:
        """Counts one step of all lanes; a step from the last of an episode does not count."""
        time_step, _, next_time_step = transition
        before, after = time_step.step_type, next_time_step.step_type
        self._steps += int(np.size(before) - np.count_nonzero(before == ts.StepType.LAST))
        self._episodes += int(np.count_nonzero(after == ts.StepType.LAST))
        self._write()

    def correct(self, steps: int, episodes: int) -> None:
        """Takes over the actor's own counts: an observer that raised may have kept this one out."""
        self._steps, self._episodes = steps, episodes
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        # A full disk does not keep the actor from acting; the next step tries again.
        with contextlib.suppress(OSError):
            os.pwrite(self._file.fileno(), _COUNTS.pack(self._steps, self._episodes), 0)


def _is_sound(left: journal_files.EarlierFile) -> bool:
    if len(left.content) == _COUNTS.size:
        return True
    logging.warning("%s is not a count of steps; it is left out.", left.path)
    return False
