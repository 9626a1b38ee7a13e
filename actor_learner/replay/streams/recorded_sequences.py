"""Sequences of recorded experience: training agents with memory without an environment."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
import tree
from absl import logging
from tf_agents.trajectories import time_step as ts

from actor_learner import experience as experience_lib
from actor_learner.replay.layouts import rows
from actor_learner.replay.recording import experience_recorder, shards
from actor_learner.replay.streams import recorded_replay, sample_stream, sequence_replay
from actor_learner.replay.writing import sequence_observer
from actor_learner.support import configurable, errors, reverb_calls

_LAST = int(ts.StepType.LAST)
_FILL_TIMEOUT_SECONDS = 60.0


@configurable.register
class RecordedSequences(recorded_replay.PrefilledStream):
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
        paths = [path] if isinstance(path, str) else list(path)
        if not paths:
            raise errors.ConfigError("RecordedSequences.path is empty; name at least one recording")
        self._directories: list[pathlib.Path] = [experience_recorder.find(path) for path in paths]
        self._sequences = sequences or sequence_replay.SequenceReplay(table_name=table_name)

    @property
    def table_name(self) -> str:
        return self._sequences.table_name

    @property
    def priority_offset(self) -> float:
        return self._sequences.priority_offset

    def check(self, experience: sample_stream.Experience) -> None:
        self._sequences.check(experience)

    def specs(self) -> tuple[ts.TimeStep, Any]:
        return experience_recorder.read_specs(self._directories[0])

    def tables(self, experience: sample_stream.Experience) -> list[reverb.Table]:
        return self._sequences.tables(experience)

    def observer(
        self,
        experience: sample_stream.Experience,
        client: reverb.Client,
        version: Callable[[], int] | None = None,
    ) -> Any:
        raise errors.ConfigError(
            "RecordedSequences is filled from files and takes no new experience: use "
            "@SequenceReplay() to learn from an environment"
        )

    def dataset(
        self,
        experience: sample_stream.Experience,
        server_address: str,
        batch_size: int,
        timeout_seconds: float,
    ) -> tf.data.Dataset:
        """Batches as `SequenceReplay` makes them; their version is unknown, -1."""
        return self._sequences.dataset(experience, server_address, batch_size, timeout_seconds)

    def num_transitions(self, experience: sample_stream.Experience, num_items: int) -> int:
        """At most so many: an episode's end leaves its last block unfilled."""
        return self._sequences.num_transitions(experience, num_items)

    def fill(self, experience: sample_stream.Experience, client: reverb.Client) -> int:
        table = reverb_calls.fetch_table(client, self.table_name, _FILL_TIMEOUT_SECONDS)
        if table.current_size:
            logging.info("Table '%s' is filled already.", self.table_name)
            return 0
        for directory in self._directories:
            recorded_replay.check_fields(directory, experience.data_spec)
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
        logging.info("Loaded %d steps of %d shards as sequences.", steps, len(self._shards))
        return steps

    @functools.cached_property
    def _shards(self) -> list[shards.Shard]:
        return recorded_replay.find_shards(self._directories)

    def _check_filled(self, client: reverb.Client) -> None:
        """Refuses a table that holds nothing, or not all."""
        where = ", ".join(map(str, self._directories))
        table = reverb_calls.fetch_table(client, self.table_name, _FILL_TIMEOUT_SECONDS)
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
    paths = [field.path for field in rows.RowLayout(data_spec, 1).fields]
    fields = shards.read(shard, paths)
    if fields is None:
        observer.reset()  # What follows does not continue what was before.
        return 0
    for row in range(shard.num_rows):
        observer(tree.unflatten_as(data_spec, [fields[path][row] for path in paths]))
    return int(np.count_nonzero(fields["step_type"] != _LAST))
