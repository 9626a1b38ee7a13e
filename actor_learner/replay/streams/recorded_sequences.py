"""Sequences of recorded experience: training agents with memory without an environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts

from actor_learner import experience as experience_lib
from actor_learner.replay.layouts import codec
from actor_learner.replay.recording import shards
from actor_learner.replay.streams import recorded_replay, sample_stream, sequence_replay
from actor_learner.replay.writing import sequence_observer
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience

_LAST = int(ts.StepType.LAST)


@configurable.register
class RecordedSequences(recorded_replay.RecordedStream):
    """Replay of sequences that are cut from experience that `ExperienceRecorder` wrote.

    What was recorded is written as an actor would have written it, so that the table holds the
    sequences that `SequenceReplay` would hold, with the states and the values that the recorded
    policy had, and priorities computed from them; from then on the learner updates these. The
    recording must be of an agent with the same memory: its `policy_info` holds those states.

    Args:
      path: Directory of a recording, or of a run with one; or several.
      sequences: Says how long sequences are and how they are sampled; its capacity must hold all of
        the recording. None is `SequenceReplay()`, as configured.
      table_name: Name of its table, unless `sequences` is given, which has its own; streams that
        are mixed need different ones.
    """

    kind = experience_lib.SEQUENCES
    weighted = True

    def __init__(
        self,
        path: str | Sequence[str],
        *,
        sequences: sequence_replay.SequenceReplay | None = None,
        table_name: str = "recorded",
    ) -> None:
        super().__init__(path, table_name)
        self._sequences = sequences or sequence_replay.SequenceReplay(table_name=table_name)

    @property
    def table_name(self) -> str:
        return self._sequences.table_name

    @property  # type: ignore[override]  # A class attribute that instances compute.
    def priority_offset(self) -> float:
        return self._sequences.priority_offset

    def check(self, experience: Experience) -> None:
        self._sequences.check(experience)

    def _bind(self, run_id: str) -> None:
        self._sequences = self._sequences.for_run(run_id)

    def tables(self, experience: Experience) -> list[reverb.Table]:
        return self._sequences.tables(experience)

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        """Batches as `SequenceReplay` makes them; their version is unknown, -1."""
        return self._sequences.dataset(experience, server_address, batch_size, timeout_seconds)

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        """At most so many: an episode's end leaves its last block unfilled."""
        return self._sequences.num_transitions(experience, num_items)

    def _load(self, experience: Experience, client: reverb.Client) -> int:
        steps = 0
        for group in shards.contiguous(self._shards):
            observer = self._sequences.observer(
                dataclasses.replace(experience, num_lanes=group[0].num_lanes),
                client,
                version=lambda: recorded_replay.UNKNOWN_VERSION,
            )
            try:
                for shard in group:
                    steps += _write(shard, experience.data_spec, observer)
            finally:
                observer.close()
        self._check_filled(client)
        return steps

    def _check_filled(self, client: reverb.Client) -> None:
        """Refuses a table that holds nothing, or not all."""
        where = self._name_directories()
        table = self._fetch_table(client)
        written = table.rate_limiter_info.insert_stats.completed
        if not written:
            raise errors.ConfigError(
                f"the recording in {where} has no whole sequence: it holds neither an episode's "
                "end nor an episode as long as a sequence"
            )
        if written > table.current_size:
            raise errors.ConfigError(
                f"the recording in {where} holds {written} sequences, of which the table kept the "
                f"last {table.current_size}: raise SequenceReplay.capacity to {written}"
            )


def _write(
    shard: shards.Shard, data_spec: Any, observer: sequence_observer.SequenceObserver
) -> int:
    """Writes the rows of a shard as if they happened now; returns how many steps were taken."""
    paths = [field.path for field in codec.fields_of(data_spec)]
    fields = shards.read(shard, paths)
    if fields is None:
        observer.reset()  # What follows does not continue what was before.
        return 0
    for row in range(shard.num_rows):
        observer(tree.unflatten_as(data_spec, [fields[path][row] for path in paths]))
    return int(np.count_nonzero(fields["step_type"] != _LAST))
