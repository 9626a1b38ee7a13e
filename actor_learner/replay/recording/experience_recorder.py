"""Records experience to disk, with what is needed to train on it without its environment."""

from __future__ import annotations

import collections
import datetime
import json
import os
import pathlib
import threading
import time
import uuid
from typing import Any, Callable, NamedTuple

import numpy as np
import tree
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import spec_json
from actor_learner.replay.layouts import codec
from actor_learner.replay.recording import shards
from actor_learner.support import errors, unsaved

DESCRIPTION = "experience.json"
DIRECTORY = "experience"
"""Where a run directory keeps its recorded experience."""

_FORMAT = 1
_MAX_WAITING = 16


class _WaitingShard(NamedTuple):
    """Rows that did not fit on the disk."""

    index: int  # type: ignore[assignment]  # Hides a method of tuples that nobody calls.
    first_row: int
    num_rows: int
    fields: dict[str, np.ndarray]


class ExperienceRecorder:
    """An observer that writes every step of all lanes to files.

    The directory holds `experience.json`, the specs of a step, and shards: `.npz` archives with one
    array `[rows, lanes, ...]` per field. A shard appears when it is whole; what a killed process
    had not written yet is lost, at most `flush_seconds` of it. While the disk is full, up to 16
    shards wait in memory; beyond that the oldest are lost, which the user is told. Several
    recorders, of resumed runs or of other actors, may share a directory if their steps look alike.

    A call copies the step; every so often it writes a file, which takes about 20 ms per megabyte.

    Args:
      directory: Where to record; made if it is not there.
      data_spec: `Trajectory` of specs of one step of one lane, the agent's `collect_data_spec`.
      num_lanes: Lanes per step.
      version: Returns the train step of the policy that acts; rows carry it.
      shard_bytes: Size of a shard before compression, and of the memory the recorder holds.
      flush_seconds: A shard is written at least this often while steps come in.
      compress: Compress shards, quickly: images shrink several times, vectors by a third.

    Raises:
      errors.SpecMismatchError: If the directory holds steps that look different.
    """

    accepts_lanes = True

    def __init__(
        self,
        directory: str | os.PathLike,
        data_spec: trajectory_lib.Trajectory,
        num_lanes: int,
        *,
        version: Callable[[], int] | None = None,
        shard_bytes: int = 8 * 2**20,
        flush_seconds: float = 60.0,
        compress: bool = True,
    ) -> None:
        self._directory = pathlib.Path(directory)
        self._layout = codec.StepCodec(data_spec, num_lanes)
        self._version = version or (lambda: 0)
        self._flush_seconds = flush_seconds
        self._compress = compress
        row_bytes = num_lanes * sum(field.num_bytes for field in self._layout.fields)
        self._capacity = max(1, shard_bytes // max(1, row_bytes))
        self._fields = {
            field.path: np.empty((self._capacity, num_lanes, *field.shape), field.dtype)
            for field in self._layout.fields
        }
        self._versions = np.empty(self._capacity, np.int64)
        self._num_rows = 0  # In memory.
        self._first_row = 0
        self._num_shards = 0
        self._waiting: collections.deque[_WaitingShard] = collections.deque()
        # The ledger of what is unsaved may try again from another thread.
        self._writing = threading.RLock()
        self._checked = False
        self._last_flush = time.monotonic()
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        self._session = f"{stamp}-{uuid.uuid4().hex[:8]}"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._describe(data_spec)

    @property
    def num_rows(self) -> int:
        """Batched steps observed so far."""
        return self._first_row + self._num_rows

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Adds one step, leaves `[lanes, ...]`, or without lanes if there is only one.

        Raises:
          errors.SpecMismatchError: If the first one does not look as the spec says.
          OSError: If a shard cannot be written, unless the disk is full.
        """
        if self._layout.num_lanes == 1 and np.ndim(trajectory.step_type) == 0:
            trajectory = tree.map_structure(lambda leaf: np.asarray(leaf)[None], trajectory)
        if not self._checked:
            self._layout.check(trajectory, str(self._directory))
            self._checked = True
        if self._num_rows == self._capacity:
            self.flush()
        for column, leaf in zip(self._fields.values(), tree.flatten(trajectory)):
            column[self._num_rows] = leaf
        self._versions[self._num_rows] = self._version()
        self._num_rows += 1
        if time.monotonic() - self._last_flush >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Writes the steps in memory to a shard of their own; on a full disk they wait."""
        with self._writing:
            self._flush()

    def _flush(self) -> None:
        self._last_flush = time.monotonic()
        if self._num_rows:
            fields = {path: column[: self._num_rows] for path, column in self._fields.items()}
            fields[codec.VERSION] = self._versions[: self._num_rows]
            shard = _WaitingShard(self._num_shards, self._first_row, self._num_rows, fields)
            self._num_shards += 1
            self._first_row += self._num_rows
            self._num_rows = 0
            self._waiting.append(shard)
        self._attempt(if_due=True)
        if self._waiting and self._waiting[-1].fields[codec.VERSION].base is self._versions:
            # The arrays are written to again from now on.
            last = self._waiting.pop()
            copies = {path: field.copy() for path, field in last.fields.items()}
            self._waiting.append(last._replace(fields=copies))
        if len(self._waiting) > _MAX_WAITING:
            lost = self._waiting.popleft()
            unsaved.ledger().lose("recorded steps of all lanes", lost.num_rows)

    def close(self) -> None:
        """Writes what is in memory; safe to call twice. What does not fit on the disk is lost."""
        self.flush()
        self._attempt()

    def _attempt(self, if_due: bool = False) -> None:
        if self._waiting:
            unsaved.ledger().attempt(
                f"recorded experience in {self._directory.name}/",
                self._write_waiting,
                where=self._directory,
                if_due=if_due,
                detail=lambda: f"{sum(shard.num_rows for shard in self._waiting):,} steps wait",
            )

    def _write_waiting(self) -> None:
        with self._writing:
            while self._waiting:
                shard = self._waiting[0]
                shards.write(
                    self._directory,
                    self._session,
                    shard.index,
                    shard.first_row,
                    shard.fields,
                    self._compress,
                )
                self._waiting.popleft()

    def __enter__(self) -> ExperienceRecorder:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _describe(self, data_spec: trajectory_lib.Trajectory) -> None:
        path = self._directory / DESCRIPTION
        described = {"format": _FORMAT, "step": spec_json.encode(data_spec)}
        if path.exists():
            recorded = codec.StepCodec(read_data_spec(self._directory), 1)
            if recorded.digest() != self._layout.digest():
                raise errors.SpecMismatchError(
                    f"{self._directory} holds experience of another kind: "
                    f"{_describe_fields(recorded)}; this run's is {_describe_fields(self._layout)}."
                    " Record to another directory"
                )
            return
        temporary = path.with_name(f".{os.getpid()}.{DESCRIPTION}")
        temporary.write_text(json.dumps(described, indent=1) + "\n")
        os.replace(temporary, path)


def find(path: str | os.PathLike) -> pathlib.Path:
    """The directory of a recording: `path` itself, or `experience` in a run directory.

    Raises:
      errors.ConfigError: If there is none.
    """
    path = pathlib.Path(path)
    for candidate in (path, path / DIRECTORY):
        if (candidate / DESCRIPTION).is_file():
            return candidate
    what = "holds no recorded experience" if path.is_dir() else "does not exist"
    raise errors.ConfigError(
        f"{path} {what} (no {DESCRIPTION}, nor one in {DIRECTORY}/): record a run with "
        "Experiment.record = True and name its directory"
    )


def read_data_spec(path: str | os.PathLike) -> trajectory_lib.Trajectory:
    """The specs of one recorded step, a `Trajectory` of tensor specs.

    Raises:
      errors.ConfigError: If there is no recording, or its description cannot be read.
      errors.SpecMismatchError: If the description is of another version.
    """
    description = find(path) / DESCRIPTION
    try:
        described = json.loads(description.read_text())
        version, step = described["format"], described["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise errors.ConfigError(f"{description} cannot be read: {error}") from error
    if version != _FORMAT:
        raise errors.SpecMismatchError(
            f"{description} is of format {version}; this version reads format {_FORMAT}"
        )
    return trajectory_lib.Trajectory(*spec_json.decode(step))


def read_specs(path: str | os.PathLike) -> tuple[ts.TimeStep, Any]:
    """`(time_step_spec, action_spec)` of recorded experience: tensor specs with their bounds."""
    step = read_data_spec(path)
    time_step_spec = ts.TimeStep(
        step_type=step.step_type,
        reward=step.reward,
        discount=step.discount,
        observation=step.observation,
    )
    return time_step_spec, step.action


def _describe_fields(layout: codec.StepCodec) -> str:
    return ", ".join(f"{field.path} {field.dtype}{list(field.shape)}" for field in layout.fields)
