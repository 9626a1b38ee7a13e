"""Sums up the actors' reports of steps and episodes for the learner."""

from __future__ import annotations

import collections
import json
from typing import Any, NamedTuple

import tensorflow as tf

_REMEMBERED_PROCESSES = 1_000
"""Of all actors together: a repeated report is seconds old, and fewer processes than these have
been started since."""

_REMEMBERED_PER_ACTOR = 10
"""At least: more than an actor reports again in the name of its earlier processes."""


class _Process(NamedTuple):
    """The latest report of one process of an actor."""

    actor: int
    steps: int
    episodes: int


class ReportedStatistics(tf.train.experimental.PythonState):
    """Sums up the reports of all actors; part of the learner's checkpoints.

    Reports hold totals of the actor's process. If one is lost with a learner, the
    next makes up for it; a repeated one changes nothing.

    Attributes:
      environment_steps: Steps reported, over all actors and their earlier processes.
    """

    def __init__(self) -> None:
        self.environment_steps = 0
        self._processes: dict[str, _Process] = {}  # In the order in which they appeared.
        self._returns: dict[int, list[float]] = {}  # By actor.
        self._lengths: dict[int, list[int]] = {}
        self._before: dict[str, Any] = {"episodes": 0, "returns": [], "lengths": []}
        self._version_lag_seconds: float | None = None
        self._shares: dict[int, dict[str, float]] = {}  # By actor.

    def take(self, report: dict[str, Any]) -> int:
        """Takes one report; returns the environment steps that it adds."""
        actor = report["actor"]
        before = self.environment_steps
        for process in report.get("earlier", ()):
            self._count(actor, *process)
        if not self._count(actor, report["incarnation"], report["total"], report["episodes"]):
            return self.environment_steps - before
        self._returns[actor] = report["returns"]
        self._lengths[actor] = report["lengths"]
        self._shares[actor] = report.get("time") or {}
        if report.get("last"):
            del self._shares[actor]
        lag = report.get("version_lag_seconds")  # Not in what an earlier release has left.
        if lag is not None:
            self._version_lag_seconds = max(lag, self._version_lag_seconds or 0.0)
        return self.environment_steps - before

    def _count(self, actor: int, name: str, steps: int, episodes: int) -> bool:
        """Adds what a process has done since it was last counted; False if that is known."""
        added = steps - self._processes.get(name, _Process(actor, 0, 0)).steps
        if added < 0:
            return False
        self.environment_steps += added
        self._processes[name] = _Process(actor, steps, episodes)
        self._forget_oldest()
        return True

    def _forget_oldest(self) -> None:
        """Leaves the latest processes of each actor, and the latest of all; the sums stay."""
        if len(self._processes) <= _REMEMBERED_PROCESSES:
            return
        of_actor = collections.Counter(process.actor for process in self._processes.values())
        for name, process in list(self._processes.items()):
            if len(self._processes) <= _REMEMBERED_PROCESSES:
                return
            if of_actor[process.actor] > _REMEMBERED_PER_ACTOR:
                of_actor[process.actor] -= 1
                self._before["episodes"] += process.episodes
                del self._processes[name]

    def take_version_lag_seconds(self) -> float | None:
        """Returns the longest time that an actor was behind, in the reports since the last call.

        None if none of them says. It is not part of checkpoints.
        """
        lag, self._version_lag_seconds = self._version_lag_seconds, None
        return lag

    def mean_shares(self) -> dict[str, float]:
        """Returns where the time of the actors goes, on average; nothing while none has said so.

        It is not part of checkpoints.
        """
        told = [shares for shares in self._shares.values() if shares]
        kinds = dict.fromkeys(kind for shares in told for kind in shares)
        return {kind: sum(each.get(kind, 0.0) for each in told) / len(told) for kind in kinds}

    @property
    def episodes(self) -> int:
        """Episodes that have ended, over all actors and their earlier processes."""
        reported = sum(process.episodes for process in self._processes.values())
        return self._before["episodes"] + reported

    @property
    def returns(self) -> list[float]:
        """Returns of the latest episodes of each actor."""
        if not self._returns:
            return self._before["returns"]
        return [value for values in self._returns.values() for value in values]

    @property
    def lengths(self) -> list[int]:
        """Lengths of the latest episodes of each actor."""
        if not self._lengths:
            return self._before["lengths"]
        return [value for values in self._lengths.values() for value in values]

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON types: all of `EpisodeStatistics`, and more."""
        return {
            "environment_steps": self.environment_steps,
            "episodes": self.episodes,
            "returns": self.returns,
            "lengths": self.lengths,
            "processes": self._processes,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned in an earlier process, even of a run in one process."""
        self.environment_steps = state["environment_steps"]
        self._processes = {
            name: _Process(*reported) for name, reported in state.get("processes", {}).items()
        }
        reported = sum(process.episodes for process in self._processes.values())
        self._before = {
            "episodes": state["episodes"] - reported,
            "returns": state["returns"],
            "lengths": state["lengths"],
        }
        self._returns, self._lengths = {}, {}

    def serialize(self) -> str:
        return json.dumps(self.state())

    def deserialize(self, string_value: str) -> None:
        self.restore(json.loads(string_value))
