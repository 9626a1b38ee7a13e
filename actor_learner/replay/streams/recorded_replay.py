"""Streams of recorded experience: training without an environment, or beside one."""

from __future__ import annotations

import abc
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
import tree
from absl import logging
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.layouts import blocks, codec
from actor_learner.replay.reading import datasets
from actor_learner.replay.recording import experience_recorder, segments, shards
from actor_learner.replay.server import tables
from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import block_observer, item_writer
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience
Version = sample_stream.Version

UNKNOWN_VERSION = -1
"""Version of recorded transitions: policies of another run chose the actions."""

_MAX_LANES = 64
_MAX_ROWS = 256
_GROUP_BYTES = 32 * 2**20
_FILL_TIMEOUT_SECONDS = 60.0


class PrefilledStream(sample_stream.SampleStream):
    """A stream that brings experience of its own.

    Once the server runs, and before training, the runner calls `fill`. Where `collects` is false
    nobody acts: there is no environment, the specs are those of `specs()`, and `observer` is not
    called.
    """

    collects = False

    @abc.abstractmethod
    def specs(self) -> tuple[ts.TimeStep, Any]:
        """`(time_step_spec, action_spec)` of the experience, for building an agent."""

    @abc.abstractmethod
    def fill(self, experience: Experience, client: reverb.Client) -> int:
        """Loads the experience into the server's tables; returns how many transitions.

        Blocks until all are loaded, about 3 s per million small ones. Does nothing where the tables
        have been filled already, as those of a restored replay server are.
        """


class RecordedStream(PrefilledStream):
    """A stream that is filled from recordings and from nothing else.

    Args:
      path: Directory of a recording, or of a run with one; or several.
      table_name: Name of the table.
    """

    def __init__(self, path: str | Sequence[str], table_name: str) -> None:
        super().__init__(table_name)
        paths = [path] if isinstance(path, str) else list(path)
        if not paths:
            raise errors.ConfigError(
                f"{type(self).__name__}.path is empty; name at least one recording"
            )
        self._directories: list[pathlib.Path] = [experience_recorder.find(path) for path in paths]

    def specs(self) -> tuple[ts.TimeStep, Any]:
        return experience_recorder.read_specs(self._directories[0])

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> Any:
        raise errors.ConfigError(
            f"{type(self).__name__} is filled from files and takes no new experience: use "
            "MixedReplay.streams = [@LaneReplay(), @RecordedReplay()], or [@SequenceReplay(), "
            "@RecordedSequences()], to learn from both"
        )

    def fill(self, experience: Experience, client: reverb.Client) -> int:
        if self._fetch_table(client).current_size:
            logging.info("Table '%s' is filled already.", self.table_name)
            return 0
        for directory in self._directories:
            check_fields(directory, experience.data_spec)
        loaded = self._load(experience, client)
        logging.info("Loaded %d steps of %d shards.", loaded, len(self._shards))
        return loaded

    @abc.abstractmethod
    def _load(self, experience: Experience, client: reverb.Client) -> int:
        """Writes the recording to the empty table; returns how many transitions."""

    def _fetch_table(self, client: reverb.Client) -> reverb.reverb_types.TableInfo:
        return item_writer.fetch_table(client, self.table_name, _FILL_TIMEOUT_SECONDS)

    def _name_directories(self) -> str:
        return ", ".join(map(str, self._directories))

    @functools.cached_property
    def _shards(self) -> list[shards.Shard]:
        found = [shard for directory in self._directories for shard in shards.find(directory)]
        if not found:
            raise errors.ConfigError(
                f"{self._name_directories()}: there is no whole shard of experience; the run that "
                "was to record it has written none yet, or its files are damaged"
            )
        return found


@configurable.register
class RecordedReplay(RecordedStream):
    """Uniform replay of experience that `ExperienceRecorder` wrote.

    Any agent that learns from transitions can train on it: the fields that its experience consists
    of are taken from the recording, others are left out. Every transition is equally likely. What
    is recorded after the stream was first used is not seen.

    Args:
      path: Directory of a recording, or of a run with one; or several.
      min_episode_return: Uses only episodes with at least this return; None uses all.
      table_name: Name of the table; streams that share a server need different ones.
      shuffle_items: Items mixed before batches are cut; None chooses.
      prefetch: Pools of `shuffle_items` items kept ready for the learner.
    """

    def __init__(
        self,
        path: str | Sequence[str],
        *,
        min_episode_return: float | None = None,
        table_name: str = "recorded",
        shuffle_items: int | None = None,
        prefetch: int = 4,
    ) -> None:
        super().__init__(path, table_name)
        self._min_episode_return = min_episode_return
        self._shuffle_items = shuffle_items
        self._prefetch = prefetch

    def tables(self, experience: Experience) -> list[reverb.Table]:
        segments, layout = self._segments(experience), self._layout(experience)
        num_groups = -(-segments.max_segments // layout.num_lanes)
        items_per_group = -(-self._rows(experience) // layout.rows_per_item)
        return [
            tables.uniform_table(
                self.table_name, num_groups * items_per_group, signature=layout.signature()
            )
        ]

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        return datasets.lane_transitions(
            server_address,
            self.table_name,
            self._layout(experience),
            batch_size,
            gamma=experience.gamma,
            shuffle_items=self._shuffle_items,
            prefetch=self._prefetch,
            timeout_seconds=timeout_seconds,
        )

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        layout = self._layout(experience)
        return num_items * layout.rows_per_item * layout.num_lanes

    def _load(self, experience: Experience, client: reverb.Client) -> int:
        segments, layout = self._segments(experience), self._layout(experience)
        observer = block_observer.BlockObserver(
            client,
            self.table_name,
            layout,
            flush_seconds=float("inf"),  # The table has room for full cells only.
            version=lambda: UNKNOWN_VERSION,
        )
        group = _Group(layout.observed, self._rows(experience) + experience.n_step)
        transitions = 0
        try:
            for segment in segments:
                group.add(segment)
                if group.full:
                    transitions += group.write(observer, experience)
            transitions += group.write(observer, experience)
        finally:
            observer.close()
        if not transitions:
            good = f" of episodes with a return of at least {self._min_episode_return:g}"
            raise errors.ConfigError(
                f"the recording in {self._name_directories()} has no whole "
                f"transition{'' if self._min_episode_return is None else good}"
            )
        return transitions

    def _segments(self, experience: Experience) -> segments.RecordedSegments:
        return segments.RecordedSegments(
            self._shards,
            [field.path for field in codec.fields_of(experience.data_spec)],
            self._rows(experience),
            experience.n_step,
            self._min_episode_return,
        )

    def _rows(self, experience: Experience) -> int:
        """Rows by which segments advance: few of large steps, all of which are kept in memory."""
        row_bytes = codec.row_bytes(experience.data_spec)
        return int(np.clip(_GROUP_BYTES // (_MAX_LANES * row_bytes), 8, _MAX_ROWS))

    def _layout(self, experience: Experience) -> blocks.BlockLayout:
        lanes = min(_MAX_LANES, self._segments(experience).max_segments)
        size = min(blocks.rows_per_item(experience.data_spec, lanes), self._rows(experience))
        return blocks.BlockLayout(
            experience.data_spec, lanes, n_step=experience.n_step, rows_per_item=size
        )


def check_fields(directory: pathlib.Path, data_spec: Any) -> None:
    """Refuses a recording that lacks what an agent's experience consists of.

    Raises:
      errors.SpecMismatchError: Naming the fields that differ.
    """
    recorded = {
        field.path: (field.shape, field.dtype)
        for field in codec.fields_of(experience_recorder.read_data_spec(directory))
    }
    differences = {
        field.path: f"the agent needs {field.dtype}{list(field.shape)}, recorded is "
        + ("nothing" if found is None else f"{found[1]}{list(found[0])}")
        for field in codec.fields_of(data_spec)
        for found in [recorded.get(field.path)]
        if found != (field.shape, field.dtype)
    }
    if not differences:
        return
    lines = [f"{path}: {difference}" for path, difference in differences.items()]
    if all(path.split("/")[0] == "policy_info" for path in differences):
        lines.append(
            "policy_info is what a policy says of its own actions, such as the state of its memory:"
            " record the collecting policy of an agent like the one that is to be trained "
            "(Experiment.record = True)"
        )
    raise errors.SpecMismatchError(
        f"{directory} was recorded with another environment or agent:\n  " + "\n  ".join(lines)
    )


class _Group:
    """Segments side by side, as if they were the lanes of one environment.

    Args:
      layout: Of the steps; it says how many segments are laid side by side.
      num_rows: Rows of a segment.
    """

    def __init__(self, layout: codec.StepCodec, num_rows: int) -> None:
        self._layout = layout
        self._fields = {
            field.path: np.zeros((num_rows, layout.num_lanes, *field.shape), field.dtype)
            for field in layout.fields
        }
        self._num_rows = num_rows
        self._clear()

    @property
    def full(self) -> bool:
        return self._size == self._layout.num_lanes

    def add(self, segment: segments.Segment) -> None:
        count = segments.num_rows(segment)
        for path, column in self._fields.items():
            column[:count, self._size] = segment[path]
        self._size += 1

    def write(self, observer: block_observer.BlockObserver, experience: Experience) -> int:
        """Writes the segments, if any, and returns how many transitions begin in them."""
        if not self._size:
            return 0
        for row in range(self._num_rows):
            leaves = [self._fields[field.path][row] for field in self._layout.fields]
            observer(tree.unflatten_as(experience.data_spec, leaves))
        observer.reset()
        starts = self._num_rows - experience.n_step
        step_type, next_step_type = self._fields["step_type"], self._fields["next_step_type"]
        valid = (step_type[:starts] != segments.LAST) & (
            next_step_type[:starts] == step_type[1 : starts + 1]
        )
        self._clear()
        return int(np.count_nonzero(valid))

    def _clear(self) -> None:
        """Fills up with rows that neither begin nor continue anything.

        A row that claims to be FIRST follows no other but a LAST one, and a row that announces a
        LAST one is not followed by FIRST.
        """
        self._size = 0
        self._fields["step_type"][:] = segments.FIRST
        self._fields["next_step_type"][:] = segments.LAST
