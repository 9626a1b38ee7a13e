"""TensorBoard charts under the tags that users of TF-Agents and CleanRL look for."""

from __future__ import annotations

import errno
import itertools
import os
import re
import socket
import time
from typing import Any

import numpy as np

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import errors

_TAGS = {
    "return": "charts/episodic_return",
    "episode_length": "charts/episodic_length",
    "environment_steps_per_second": "charts/SPS",
    "train_steps_per_second": "charts/train_steps_per_second",
    "loss": "losses/loss",
    "replay_size": "replay/size",
    "samples_per_insert": "replay/samples_per_insert",
    "eval_return": "eval/return",
    "eval_return_std": "eval/return_std",
    "best_return": "eval/best_return",
    "eval_episodes": "eval/episodes",
    "best_return_std": "eval/best_return_std",
    "best_episodes": "eval/best_episodes",
    "best_environment_steps": "eval/best_environment_steps",
}
_GAUGES = {
    *("actor_gradient_norm", "alpha", "clip_fraction", "critic_gradient_norm", "entropy"),
    *("explained_variance", "gradient_norm", "importance"),
    *("kl", "q_value", "td_error", "value_target"),
}

_numbers = itertools.count()

_TIMES = re.compile(
    r"actor_(stepping|inferring|writing|waiting)|learner_(training|sampling|waiting)"
)


class TensorBoardLogger:
    """Writes each number of a row as a scalar against `environment_steps`, at once.

    The parts of a loss are below `losses/`, what experts of an algorithm look at below `gauges/`.
    Keys without a tag of their own become `charts/<key>`; strings are left out. Each logger writes
    an event file of its own, so several may share `directory`. One that has failed, on a full disk,
    leaves its file with whole rows only, and is of no more use: make another.

    The file is written without TensorFlow, whose summaries make several eager tensors per scalar:
    on Python 3.11 each of them loses some bytes for ever (see `counters`).
    """

    def __init__(self, directory: str | os.PathLike):
        # Only here: they take a while to import.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer import record_writer
        from tensorboard.util import tensor_util

        self._event, self._summary = event_pb2.Event, summary_pb2
        self._make_tensor = tensor_util.make_tensor_proto
        os.makedirs(directory, exist_ok=True)
        self._file = _EventFile(os.path.join(directory, _file_name()))
        self._records = record_writer.RecordWriter(self._file)
        try:
            self._write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
        except OSError:  # On a full disk; the file without its first record is useless.
            os.remove(self._file.path)
            raise

    def write(self, row: logger_lib.Row) -> None:
        """Raises `errors.ActorLearnerError` for a row without `environment_steps`."""
        values = logger_lib.plain_row(row)
        if "environment_steps" not in values:
            raise errors.ActorLearnerError(
                f"a row for TensorBoard has no 'environment_steps', only {sorted(values)}: "
                "there is no place on the axis to draw it at"
            )
        step = int(values.pop("environment_steps"))
        scalars = [
            self._scalar(_tag(key), value)
            for key, value in values.items()
            if not isinstance(value, str)
        ]
        summary = self._summary.Summary(value=scalars)
        self._write(self._event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        try:
            self._records.write(event.SerializeToString())
        except OSError:
            self._file.abandon()
            raise

    def _scalar(self, tag: str, value: logger_lib.Value) -> Any:
        with np.errstate(over="ignore"):  # What float32 cannot hold is drawn as infinite.
            number = np.float32(value)
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = self._summary.SummaryMetadata(
            plugin_data=plugin, data_class=self._summary.DATA_CLASS_SCALAR
        )
        tensor = self._make_tensor(number)
        return self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)

    def close(self) -> None:
        self._file.close()


class _EventFile:
    """A file that always ends with a whole record: nobody reads on behind a torn one.

    Args:
      path: Must not exist yet.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._whole_bytes = 0
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write(self, record: bytes) -> None:
        if self._fd is None:
            raise OSError(errno.EBADF, "the event file is closed", self.path)
        left = memoryview(record)
        while left:
            left = left[os.write(self._fd, left) :]
        self._whole_bytes += len(record)

    def abandon(self) -> None:
        """Takes back what was written of the last record, and closes the file."""
        if self._fd is not None:
            os.ftruncate(self._fd, self._whole_bytes)
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _file_name() -> str:
    """As TensorFlow names event files; of each process and logger another one."""
    host = socket.gethostname()
    return f"events.out.tfevents.{int(time.time())}.{host}.{os.getpid()}.{next(_numbers)}.v2"


def _tag(key: str) -> str:
    if key in _TAGS:
        return _TAGS[key]
    if key.endswith("_loss"):
        return f"losses/{key}"
    if _TIMES.fullmatch(key):
        return f"time/{key}"
    return f"gauges/{key}" if key in _GAUGES else f"charts/{key}"
