"""TensorBoard charts under the tags that users of TF-Agents and CleanRL look for."""

from __future__ import annotations

import os

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
    *("alpha", "clip_fraction", "entropy", "explained_variance", "gradient_norm", "importance"),
    *("kl", "q_value", "td_error", "value_target"),
}


class TensorBoardLogger:
    """Writes each number of a row as a scalar against `environment_steps`, flushed per row.

    The parts of a loss are below `losses/`, what experts of an algorithm look at below `gauges/`.
    Keys without a tag of their own become `charts/<key>`; strings are left out. Each logger writes
    an event file of its own, so several may share `directory`. One that has failed, on a full disk,
    leaves its file with whole rows only, and is of no more use: make another.
    """

    def __init__(self, directory: str | os.PathLike):
        import tensorflow as tf

        self._tf = tf
        directory = os.fspath(directory)
        before = _event_files(directory)
        try:
            self._writer = tf.summary.create_file_writer(directory)
            self._writer.flush()
        except tf.errors.OpError:  # On a full disk; the file without its first record is useless.
            for name in _event_files(directory) - before:
                os.remove(os.path.join(directory, name))
            raise
        (name,) = _event_files(directory) - before
        self._path = os.path.join(directory, name)
        self._whole_bytes = os.path.getsize(self._path)

    def write(self, row: logger_lib.Row) -> None:
        """Raises `errors.ActorLearnerError` for a row without `environment_steps`."""
        values = logger_lib.plain_row(row)
        if "environment_steps" not in values:
            raise errors.ActorLearnerError(
                f"a row for TensorBoard has no 'environment_steps', only {sorted(values)}: "
                "there is no place on the axis to draw it at"
            )
        step = values.pop("environment_steps")
        try:
            self._write(step, values)
        except self._tf.errors.OpError:
            self._abandon()
            raise
        self._whole_bytes = os.path.getsize(self._path)

    def _write(self, step: logger_lib.Value, values: logger_lib.Row) -> None:
        summary = self._tf.summary
        # A caller inside `record_if(False)`, as learners use between their own summaries, must not
        # silence these.
        with self._writer.as_default(step=step), summary.record_if(True):
            for key, value in values.items():
                if not isinstance(value, str):
                    with np.errstate(over="ignore"):  # TensorFlow refuses what float32 cannot hold.
                        number = np.float32(value)
                    summary.scalar(_tag(key), number)
        self._writer.flush()

    def _abandon(self) -> None:
        """Ends the file with the last row that is whole: nobody reads on behind a torn record."""
        self._writer = None  # TensorFlow closes the file with it.
        os.truncate(self._path, self._whole_bytes)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _tag(key: str) -> str:
    if key in _TAGS:
        return _TAGS[key]
    if key.endswith("_loss"):
        return f"losses/{key}"
    return f"gauges/{key}" if key in _GAUGES else f"charts/{key}"


def _event_files(directory: str) -> set[str]:
    own = f".{os.getpid()}."  # Those of other processes, or begun by them meanwhile, are theirs.
    if not os.path.isdir(directory):
        return set()
    return {name for name in os.listdir(directory) if "tfevents" in name and own in name}
