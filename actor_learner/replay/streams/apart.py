"""A sample stream whose lanes are written apart: for agents that take turns."""

from __future__ import annotations

import dataclasses
from typing import Any

import reverb
import tensorflow as tf

from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import lanes_apart
from actor_learner.support import errors

Experience = sample_stream.Experience


class Apart(sample_stream.SampleStream):
    """Writes every lane of an actor as if it were the only one, to the tables of another stream.

    Rows of all lanes side by side suppose that all of them step together. Agents that take turns do
    not: each has steps of its own, as many as it has turns.

    Args:
      inner: The stream; its items are those of a single lane.
      num_lanes: Lanes of each actor.
    """

    def __init__(self, inner: sample_stream.SampleStream, num_lanes: int) -> None:
        super().__init__()
        self._inner = inner.with_lanes_apart(num_lanes)
        self.kind, self.weighted = inner.kind, inner.weighted
        self.priority_offset, self.repeatable = inner.priority_offset, inner.repeatable
        self.keeps_items, self.collects = inner.keeps_items, inner.collects
        self.spreads = inner.spreads

    @property
    def table_name(self) -> str:
        return self._inner.table_name

    def _bind(self, run_id: str) -> None:
        self._inner = self._inner.for_run(run_id)

    def check(self, experience: Experience) -> None:
        if not self.collects:
            raise errors.ConfigError(
                f"Experiment.replay is a {type(self._inner).__name__}, which cannot be filled by "
                "agents that take turns: leave the binding out"
            )
        self._inner.check(_one_lane(experience))

    def tables(self, experience: Experience) -> list[reverb.Table]:
        return self._inner.tables(_one_lane(experience))

    def items_of_each_share(self, experience: Experience) -> int:
        return self._inner.items_of_each_share(_one_lane(experience))

    def observer(
        self,
        experience: Experience,
        client: reverb.Client,
        version: sample_stream.Version = None,
    ) -> lanes_apart.LanesApart:
        return lanes_apart.LanesApart(
            [
                self._inner.observer(_one_lane(experience), client, version=version)
                for _ in range(experience.num_lanes)
            ]
        )

    def dataset(
        self,
        experience: Experience,
        server_address: str,
        batch_size: int,
        timeout_seconds: float,
        **more: Any,
    ) -> tf.data.Dataset:
        return self._inner.dataset(
            _one_lane(experience), server_address, batch_size, timeout_seconds, **more
        )

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        return self._inner.num_transitions(_one_lane(experience), num_items)

    def prioritized(self, batch_size: int) -> list[sample_stream.PrioritizedRows]:
        return self._inner.prioritized(batch_size)

    def first_steps(self, experience: Experience) -> int:
        return experience.num_lanes * self._inner.first_steps(_one_lane(experience))

    def group_steps_per_update(self, experience: Experience, batch_size: int) -> int | None:
        """Of all lanes together, which must fill a whole number of batches."""
        return self._inner.group_steps_per_update(experience, batch_size)

    def cells_per_batch(self, experience: Experience) -> int:
        """Items that make a batch, of streams that use every item once."""
        inner: Any = self._inner
        return inner.cells_per_batch(_one_lane(experience))


def _one_lane(experience: Experience) -> Experience:
    return dataclasses.replace(experience, num_lanes=1)
