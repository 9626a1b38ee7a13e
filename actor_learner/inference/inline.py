"""Inference on the actor's own thread, for any number of groups."""

from __future__ import annotations

from collections.abc import Sequence

from tf_agents.trajectories import time_step as ts

from actor_learner.inference import protocol


class InlineInference:
    """Answers every request at once: a ticket is the answer.

    Args:
      groups: The inference of each group of lanes.
    """

    answers_later = False

    def __init__(self, groups: Sequence[protocol.GroupInference]) -> None:
        self._groups = tuple(groups)

    @property
    def kind(self) -> str:
        return protocol.kind_of(self._groups[0])

    def reset(self, group: int) -> None:
        self._groups[group].reset()

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        for group in self._groups:
            group.refresh(version, epoch, certain=certain)

    def request(self, group: int, time_step: ts.TimeStep) -> protocol.Response:
        return self._groups[group].act(time_step)

    def result(
        self, ticket: protocol.Response, timeout_seconds: float | None = None
    ) -> protocol.Response:
        del timeout_seconds
        return ticket

    def close(self) -> None:
        """Nothing is left open."""
