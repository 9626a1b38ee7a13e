"""A sample stream whose lanes are written apart: for agents that take turns, or whole episodes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner.replay.streams import recorded_replay, sample_stream
from actor_learner.replay.writing import lanes_apart, whole_episodes
from actor_learner.support import errors

Experience = sample_stream.Experience


class Apart(sample_stream.SampleStream):
    """Writes every lane of an actor as if it were the only one, to the tables of another stream.

    Rows of all lanes side by side suppose that all of them step together. Agents that take turns do
    not: each has steps of its own, as many as it has turns. Nor do lanes whose episodes are held
    back until they have ended.

    Args:
      inner: The stream; its items are those of a single lane.
      num_lanes: Lanes of each actor.
      takes_turns: Whether the lanes do not step together.
      after_done: Whether an episode is written when it has ended, and not before.
      postprocessors: What becomes of an episode before it is written, with `after_done`.

    Attributes:
      takes_turns: As given.
    """

    def __init__(
        self,
        inner: sample_stream.SampleStream,
        num_lanes: int,
        *,
        takes_turns: bool = True,
        after_done: bool = False,
        postprocessors: Sequence[whole_episodes.Postprocessor] = (),
    ) -> None:
        super().__init__()
        self.takes_turns = takes_turns
        self._after_done = after_done
        self._postprocessors = tuple(postprocessors)
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

    def with_table(self, table_name: str) -> Apart:
        own = copy.copy(self)
        own._inner = self._inner.with_table(table_name)
        return own

    def for_learners(self, num_learners: int, experience: Experience) -> Apart:
        part = copy.copy(self)
        part._inner = self._inner.for_learners(num_learners, _one_lane(experience))
        return part

    def check(self, experience: Experience) -> None:
        if not self.collects or isinstance(self._inner, recorded_replay.PrefilledStream):
            how = "by agents that take turns" if self.takes_turns else "with whole episodes"
            raise errors.ConfigError(
                f"Experiment.replay is a {type(self._inner).__name__}, which cannot be filled "
                f"{how}: leave the binding out"
            )
        if self._after_done and self.kind == experience_lib.UNROLLS:
            raise errors.ConfigError(
                "send_after_done or postprocessors is set, but an unroll is learned from as soon "
                "as it is complete, and the actor would wait for room in the queue with an episode "
                "in its hands: leave them out, ppo computes its advantages where it learns "
                "(ppo.gae_lambda); or use an agent that replays"
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
        def make(version: sample_stream.Version) -> Any:
            return self._inner.observer(_one_lane(experience), client, version=version)

        def of_lane() -> Any:
            if not self._after_done:
                return make(version)
            return whole_episodes.WholeEpisodes(make, version, self._postprocessors)

        return lanes_apart.LanesApart([of_lane() for _ in range(experience.num_lanes)])

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
