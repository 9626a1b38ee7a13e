"""Keeps an actor's counts where they outlive its process, which may be killed before it reports."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
from typing import Any, BinaryIO, NamedTuple
from urllib import parse

import numpy as np
from absl import logging
from tf_agents.trajectories import time_step as ts

FOLDER = "steps"
MAX_EARLIER = 8
"""How many earlier processes of one actor are remembered: more of them than can be started within
one checkpoint interval of the learner."""

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

    Attributes:
      earlier: The latest processes of this actor, the oldest first.
    """

    def __init__(self, directory: pathlib.Path | None, incarnation: str) -> None:
        self._steps = self._episodes = 0
        self._file: BinaryIO | None = None
        self.earlier: list[EarlierProcess] = []
        if directory is None:
            return
        try:
            folder = directory / FOLDER
            folder.mkdir(exist_ok=True)
            self.earlier = _read_all(folder)
            path = folder / parse.quote(incarnation, safe="")
            self._file = open(path, "wb", buffering=0)  # Open for as long as the process acts.
        except OSError as error:
            logging.warning(
                "Steps are not written to %s: what this process has not reported when it is killed "
                "will not be counted. %s",
                directory,
                error,
            )

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


def _read_all(folder: pathlib.Path) -> list[EarlierProcess]:
    """Reads what earlier processes left, and removes what nobody needs any more."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # Another process of this actor removes, too.
            content, written = path.read_bytes(), path.stat().st_mtime_ns
            if not content.strip(b"\0"):
                path.unlink()  # It has done nothing.
            elif len(content) != _COUNTS.size:
                logging.warning("%s is not a count of steps; it is left out.", path)
            else:
                found.append((written, path, _COUNTS.unpack(content)))
    found.sort()
    for _, path, _ in found[:-MAX_EARLIER]:
        path.unlink(missing_ok=True)
    return [
        EarlierProcess(parse.unquote(path.name), steps, episodes)
        for _, path, (steps, episodes) in found[-MAX_EARLIER:]
    ]
