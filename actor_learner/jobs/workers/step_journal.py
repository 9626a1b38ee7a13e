"""Keeps an actor's counts where they outlive its process, which may be killed before it reports."""

from __future__ import annotations

import mmap
import pathlib
from typing import Any, NamedTuple
from urllib import parse

import numpy as np
from absl import logging
from tf_agents.trajectories import time_step as ts

FOLDER = "steps"
MAX_EARLIER = 8
"""How many earlier processes of one actor are remembered: more of them than can be started within
one checkpoint interval of the learner."""

_NUM_BYTES = 16


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
    """Counts steps and episodes in a mapped file, as an observer of the actor.

    A store into the mapping survives `kill -9` and costs less than a system call. The successor of
    a killed process finds the counts and reports them in its name; reports hold totals, so that
    what the learner has counted already counts once.

    Args:
      directory: The job's own; None where there is none: then nothing outlives the process.
      incarnation: Of this process.

    Attributes:
      earlier: The latest processes of this actor, the oldest first.
    """

    def __init__(self, directory: pathlib.Path | None, incarnation: str) -> None:
        self._steps = self._episodes = 0
        self._counts = np.zeros(2, np.int64)
        self.earlier: list[EarlierProcess] = []
        if directory is None:
            return
        try:
            folder = directory / FOLDER
            folder.mkdir(exist_ok=True)
            self.earlier = _read_all(folder)
            self._counts = _mapped(folder / parse.quote(incarnation, safe=""))
        except OSError as error:
            logging.warning(
                "Steps are not written to %s: what this process has not reported when it is killed "
                "will not be counted. %s",
                directory,
                error,
            )

    def __call__(self, trajectory: Any) -> None:
        """Counts one step of all lanes; a step from the last of an episode does not count."""
        types = trajectory.step_type
        self._steps += int(np.size(types) - np.count_nonzero(types == ts.StepType.LAST))
        self._episodes += int(np.count_nonzero(trajectory.next_step_type == ts.StepType.LAST))
        self._write()

    def correct(self, steps: int, episodes: int) -> None:
        """Takes over the actor's own counts: an observer that raised may have kept this one out."""
        self._steps, self._episodes = steps, episodes
        self._write()

    def _write(self) -> None:
        self._counts[0] = self._steps
        self._counts[1] = self._episodes


def _read_all(folder: pathlib.Path) -> list[EarlierProcess]:
    """Reads what earlier processes left, and removes what nobody needs any more."""
    found = []
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in paths[:-MAX_EARLIER]:
        path.unlink(missing_ok=True)
    for path in paths[-MAX_EARLIER:]:
        content = path.read_bytes()
        if len(content) != _NUM_BYTES:
            logging.warning("%s is not a count of steps; it is left out.", path)
            continue
        steps, episodes = np.frombuffer(content, np.int64).tolist()
        found.append(EarlierProcess(parse.unquote(path.name), steps, episodes))
    return found


def _mapped(path: pathlib.Path) -> np.ndarray:
    """Maps a new file of two counts; it stays mapped for as long as the array is used."""
    with open(path, "w+b") as file:
        file.write(bytes(_NUM_BYTES))  # Written, not just made long: a store must find its page.
        file.flush()
        return np.frombuffer(mmap.mmap(file.fileno(), _NUM_BYTES), np.int64)
