"""What the learner knows of the actors' episodes, from their reports."""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf


class ReportedStatistics(tf.train.experimental.PythonState):
    """Sums up the reports of all actors; part of the learner's checkpoints.

    Attributes:
      environment_steps: Steps reported, over all actors and their earlier processes.
      totals: By actor, the steps that its latest process has reported.
    """

    def __init__(self) -> None:
        self.environment_steps = 0
        self._episodes: dict[str, int] = {}  # By process of an actor.
        self._returns: dict[int, list[float]] = {}  # By actor.
        self._lengths: dict[int, list[int]] = {}
        self.totals: dict[int, int] = {}  # By actor: all steps of its latest process.

    def take(self, report: dict[str, Any]) -> int:
        """Takes in one report; returns the environment steps that it adds."""
        self.environment_steps += report["steps"]
        self.totals[report["actor"]] = report["total"]
        self._episodes[report["incarnation"]] = report["episodes"]
        self._returns[report["actor"]] = report["returns"]
        self._lengths[report["actor"]] = report["lengths"]
        return report["steps"]

    @property
    def episodes(self) -> int:
        """Episodes that have ended, over all actors and their earlier processes."""
        return sum(self._episodes.values())

    @property
    def returns(self) -> list[float]:
        """Returns of the latest episodes of each actor."""
        return [value for values in self._returns.values() for value in values]

    @property
    def lengths(self) -> list[int]:
        """Lengths of the latest episodes of each actor."""
        return [value for values in self._lengths.values() for value in values]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain JSON types."""
        return {"environment_steps": self.environment_steps, "episodes": self._episodes}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned in an earlier process."""
        self.environment_steps = state["environment_steps"]
        self._episodes = dict(state["episodes"])

    def serialize(self) -> str:
        return json.dumps(self.state())

    def deserialize(self, string_value: str) -> None:
        self.restore(json.loads(string_value))
