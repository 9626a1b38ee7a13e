"""TensorBoard charts under the tags that users of TF-Agents and CleanRL look for."""

from __future__ import annotations

import os

from actor_learner import errors
from actor_learner.reporting import logger as logger_lib

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
    "eval_episodes": "eval/episodes",
}


class TensorBoardLogger:
    """Writes each number of a row as a scalar against `environment_steps`, flushed per row.

    Keys without a tag of their own become `charts/<key>`; strings are left out. Each logger writes
    an event file of its own, so several may share `directory`.
    """

    def __init__(self, directory: str | os.PathLike):
        import tensorflow as tf

        self._tf = tf
        self._writer = tf.summary.create_file_writer(os.fspath(directory))

    def write(self, row: logger_lib.Row) -> None:
        """Raises `errors.ActorLearnerError` for a row without `environment_steps`."""
        values = logger_lib.plain_row(row)
        if "environment_steps" not in values:
            raise errors.ActorLearnerError(
                f"a row for TensorBoard has no 'environment_steps', only {sorted(values)}: "
                "there is no place on the axis to draw it at"
            )
        step = values.pop("environment_steps")
        summary = self._tf.summary
        # A caller inside `record_if(False)`, as learners use between their own summaries, must not
        # silence these.
        with self._writer.as_default(step=step), summary.record_if(True):
            for key, value in values.items():
                if not isinstance(value, str):
                    summary.scalar(_TAGS.get(key, f"charts/{key}"), value)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
