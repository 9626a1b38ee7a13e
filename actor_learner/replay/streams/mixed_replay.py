"""Batches mixed from several streams: recorded and new experience, in fixed shares."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner import experience as experience_lib
from actor_learner.replay.streams import recorded_replay, sample_stream
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience
Version = sample_stream.Version


@configurable.register
class MixedReplay(recorded_replay.PrefilledStream):
    """Every batch holds a fixed share of rows of each stream.

    MixedReplay.streams = [@LaneReplay(), @RecordedReplay()]
    MixedReplay.weights = [0.5, 0.5]

    The shares are exact, not random: a batch of 64 with these weights has 32 rows of each. Where
    they do not come out even, the rows that are left go to the largest remainders.

    Streams that sample by priority can be among them, `[@PrioritizedReplay(), @RecordedReplay()]`
    or `[@SequenceReplay(), @RecordedSequences()]`. Then all rows have importance weights: `(1 / (N
    p)) ** exponent` for an item drawn with probability p out of N, with the exponent of its stream,
    and so 1 for rows of uniform streams, all over the largest weight of the batch. With an exponent
    of 1 the loss is on average that of uniform draws from each stream, in the given shares. New
    priorities go to the tables that the rows came from.

    Args:
      streams: Streams of the same kind, with a `table_name` of its own each. One of them at most
        may be written by actors; it is named first.
      weights: Share of each, in any unit.
    """

    def __init__(
        self, streams: Sequence[sample_stream.SampleStream], weights: Sequence[float]
    ) -> None:
        self._streams = list(streams)
        self._weights = list(weights)
        if len(self._streams) < 2 or len(self._streams) != len(self._weights):
            raise errors.ConfigError(
                f"MixedReplay needs two streams or more and a weight for each, got "
                f"{len(self._streams)} streams and {len(self._weights)} weights"
            )
        if min(self._weights) <= 0:
            raise errors.ConfigError(
                f"MixedReplay.weights must all be above 0, got {self._weights}: leave out streams "
                "that are not to be used"
            )
        for stream in self._streams:
            if stream.kind == experience_lib.UNROLLS:
                raise errors.ConfigError(
                    f"MixedReplay.streams: {type(stream).__name__} hands each unroll on once and "
                    "cannot be mixed; use streams that replay, such as @LaneReplay()"
                )
        if len({stream.kind for stream in self._streams}) > 1:
            kinds = ", ".join(f"{type(s).__name__} {s.kind}" for s in self._streams)
            raise errors.ConfigError(f"MixedReplay.streams are of different kinds: {kinds}")
        written = [stream for stream in self._streams if stream.collects]
        if len(written) > 1 or (written and written[0] is not self._streams[0]):
            raise errors.ConfigError(
                "MixedReplay.streams may hold one stream that actors write to, in the first place; "
                f"got {', '.join(type(stream).__name__ for stream in self._streams)}"
            )
        self.kind = self._streams[0].kind
        self.collects = bool(written)
        self.weighted = any(stream.weighted for stream in self._streams)

    @property
    def table_name(self) -> str:
        return self._streams[0].table_name

    def _bind(self, run_id: str) -> None:
        self._streams = [stream.for_run(run_id) for stream in self._streams]

    def with_table(self, table_name: str) -> MixedReplay:
        own = copy.copy(self)
        own._streams = [self._streams[0].with_table(table_name), *self._streams[1:]]
        return own

    def check(self, experience: Experience) -> None:
        for stream in self._streams:
            stream.check(experience)

    def prioritized(self, batch_size: int) -> list[sample_stream.PrioritizedRows]:
        found, start = [], 0
        for stream, size in zip(self._streams, shares(self._weights, batch_size)):
            for part in stream.prioritized(size):
                rows = slice(start + part.rows.start, start + part.rows.stop)
                found.append(part._replace(rows=rows))
            start += size
        return found

    def specs(self) -> tuple[ts.TimeStep, Any]:
        return next(
            s for s in self._streams if isinstance(s, recorded_replay.PrefilledStream)
        ).specs()

    def fill(self, experience: Experience, client: reverb.Client) -> int:
        return sum(
            stream.fill(experience, client)
            for stream in self._streams
            if isinstance(stream, recorded_replay.PrefilledStream)
        )

    def tables(self, experience: Experience) -> list[reverb.Table]:
        found = [table for stream in self._streams for table in stream.tables(experience)]
        names = [table.name for table in found]
        if len(set(names)) < len(names):
            raise errors.ConfigError(
                f"MixedReplay.streams have tables of the same name ({', '.join(names)}): give each "
                "a table_name of its own"
            )
        return found

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> Any:
        return self._streams[0].observer(experience, client, version)

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        """Batches as those of the streams; those of uniform ones too have weights if any has."""
        parts = []
        for stream, size in zip(self._streams, shares(self._weights, batch_size)):
            part = stream.dataset(experience, server_address, size, timeout_seconds)
            if self.weighted and not stream.weighted:
                part = part.map(_weigh_alike(size))
            parts.append(part)
        for stream, part in zip(self._streams[1:], parts[1:]):
            try:
                tf.nest.assert_same_structure(part.element_spec, parts[0].element_spec)
            except (TypeError, ValueError) as error:
                raise errors.ConfigError(
                    f"MixedReplay: batches of {type(stream).__name__} and "
                    f"{type(self._streams[0]).__name__} are built differently; mix "
                    "@LaneReplay() or @PrioritizedReplay() with @RecordedReplay(), and "
                    "@SequenceReplay() with @RecordedSequences()"
                ) from error

        def join(*batches: Any) -> Any:
            batch, info = tf.nest.map_structure(lambda *leaves: tf.concat(leaves, axis=0), *batches)
            if self.weighted:
                # Each stream has scaled its own: put together, they need a common measure.
                scaled = info.weight / tf.reduce_max(info.weight)
                batch = {**batch, "weights": tf.cast(scaled, tf.float32)}
            return batch, info

        return tf.data.Dataset.zip(tuple(parts)).map(join).prefetch(1)

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        return self._streams[0].num_transitions(experience, num_items)


def shares(weights: Sequence[float], total: int) -> list[int]:
    """Splits `total` rows in proportion to `weights`, none of them empty.

    Raises:
      errors.ConfigError: If one share would be less than a row.
    """
    exact = np.asarray(weights, np.float64) / np.sum(weights) * total
    counts = np.floor(exact + 1e-9).astype(int)
    largest = np.argsort(-(exact - counts), kind="stable")
    counts[largest[: total - counts.sum()]] += 1
    if not counts.all():
        raise errors.ConfigError(
            f"MixedReplay.weights {list(weights)} leave a stream without a row in a batch of "
            f"{total}: raise Experiment.batch_size, or its weight"
        )
    return counts.tolist()


def _weigh_alike(size: int) -> Callable[[Any, Any], Any]:
    """Makes batches of a uniform stream look like those of a weighted one.

    Args:
      size: Rows of its batches.
    """

    def weigh(batch: Any, info: Any) -> Any:
        zeros = tf.zeros([size], tf.float64)
        return {"experience": batch, "weights": tf.ones([size])}, experience_lib.SampleInfo(
            key=tf.zeros([size], tf.uint64),  # Of no item: `prioritized` leaves these rows out.
            probability=zeros,
            table_size=tf.zeros([size], tf.int64),
            priority=zeros,
            version=getattr(
                info, "version", tf.fill([size], np.int64(recorded_replay.UNKNOWN_VERSION))
            ),
            weight=tf.ones([size], tf.float64),
        )

    return weigh
