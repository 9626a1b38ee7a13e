"""Training checkpoints that fall back to the newest readable one and never restart in silence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.checkpoint import trackable_view

from actor_learner.support import errors, finite, unsaved

AGENT = "agent"
"""Name of the agent among what is saved."""

CORRUPT_DIR = "corrupt"
_INDEX_FILE = "checkpoint"
_FILE_NAME = re.compile(r"^(ckpt-(\d+))\.(index|data-\d{5}-of-\d{5})$")
# What TensorFlow writes before it renames; listed directories may end in a slash.
_UNFINISHED = re.compile(r"^(ckpt-\d+_temp/?|checkpoint\.(tmp[0-9a-f]+|new))$")
# Trouble with reaching a file says nothing about what is in it.
_ACCESS_ERRORS = (
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
    PermissionError,
    MemoryError,
)


def saved_in_words(save: Callable[[], str | None]) -> str:
    """Saves after something else has failed; returns a clause that says what came of it."""
    try:
        path = save()
    except errors.NotFiniteError:
        return "the agent is not finite and was not saved; the last checkpoint is left as it is"
    except Exception as error:  # What failed first must still reach the caller.
        logging.exception("Saving a checkpoint after a failure failed, too.")
        return f"a checkpoint could not be saved either ({type(error).__name__}: {error})"
    if path is None:
        return "a checkpoint could not be saved: the disk is full"
    return f"a checkpoint was saved first: {path}"


class Checkpointer:
    """Saves trackables as `<ckpt_dir>/ckpt-<step>` and restores the newest that can be read.

    TensorFlow's own manager believes the small text file `checkpoint`, restarts from scratch if
    that is garbage, and fails if the newest checkpoint is damaged. This one looks at the files
    themselves. A checkpoint is readable if every tensor in it can be read (their checksums are
    verified) before any variable is touched, and the numbers of the agent in it are all finite:
    nothing can be learned from others, and none are saved. Damaged ones are moved to
    `<ckpt_dir>/corrupt/` once an older readable one is found; if there is none, nothing is moved
    and nothing starts.

        checkpointer = Checkpointer(directory, max_to_keep=3, agent=agent, train_step=train_step)
        checkpointer.initialize_or_restore()
        ...
        checkpointer.save(train_step)
    """

    def __init__(self, ckpt_dir: str, max_to_keep: int | None = 20, **trackables: Any):
        """Looks for checkpoints and verifies the newest; reads each tensor once, changes none.

        Args:
          ckpt_dir: Created if it does not exist.
          max_to_keep: The oldest checkpoints beyond this many are deleted after each save; None
            keeps all. Those found in `ckpt_dir` count.
          **trackables: What to save, by name.

        Raises:
          errors.CheckpointError: If there are checkpoint files and none can be read.
        """
        self._directory = os.fspath(ckpt_dir)
        self._trackables = trackables
        self._checkpoint = tf.train.Checkpoint(**trackables)
        self._restored_from: str | None = None
        tf.io.gfile.makedirs(self._directory)
        good = self._readable_steps()
        self._remove_unfinished(tf.io.gfile.listdir(self._directory))
        if good:
            # On a full disk TensorFlow's manager rotates only what it saves itself.
            unsaved.ledger().attempt(
                "the list of checkpoints",
                lambda: self._write_index(good),
                where=self._directory,
                retry=False,
            )
        self._newest = self._prefix(good[-1]) if good else None
        self._exists = bool(good)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, directory=self._directory, max_to_keep=max_to_keep
        )

    @property
    def checkpoint_exists(self) -> bool:
        """Whether there was a checkpoint to restore, or one has been saved since."""
        return self._exists

    @property
    def manager(self) -> tf.train.CheckpointManager:
        """TensorFlow's manager, which names and rotates the files."""
        return self._manager

    @property
    def restored_from(self) -> str | None:
        """Path prefix of the checkpoint that was restored; None after a fresh start."""
        return self._restored_from

    def initialize_or_restore(self) -> str | None:
        """Restores the newest readable checkpoint, if there is one, and returns its prefix.

        Trackables of which the checkpoint holds nothing keep their values.

        Raises:
          errors.CheckpointError: If the checkpoint holds other variables than the trackables have.
        """
        if self._newest is None:
            logging.info("No checkpoint in %s: starting afresh.", self._directory)
            return None
        saved = {name.split("/")[0] for name, _ in tf.train.list_variables(self._newest)}
        absent = sorted(set(self._trackables) - saved)
        if absent:
            logging.info("%s holds no %s: kept as they are.", self._newest, ", ".join(absent))
        present = {name: item for name, item in self._trackables.items() if name in saved}
        try:
            status = tf.train.Checkpoint(**present).restore(self._newest)
            status.assert_existing_objects_matched()
            status.expect_partial()
        except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
            raise errors.CheckpointError(
                f"{self._newest} can be read but does not fit what it is restored into: {error}\n"
                "The agent, its networks or its optimizer probably differ from those that wrote "
                "it. Use the configuration it was written with, or another directory."
            ) from error
        self._restored_from = self._newest
        logging.info("Restored %s.", self._newest)
        return self._restored_from

    def save(
        self, global_step: Any, options: tf.train.CheckpointOptions | None = None
    ) -> str | None:
        """Writes `ckpt-<global_step>`, deletes what exceeds `max_to_keep`, returns the prefix.

        Where that fails, as on a full disk, nothing is left of it, and the others stay.

        Raises:
          errors.NotFiniteError: If a variable of the agent is not finite; nothing was written.
        """
        problem = finite.first_not_finite(self._agent_variables())
        if problem is not None:
            raise errors.NotFiniteError(
                f"no checkpoint is saved in {self._directory} at step {int(global_step)}: "
                f"{problem} of the agent is not finite. The last one that was saved is left as it "
                "is"
            )
        try:
            path = self._manager.save(checkpoint_number=global_step, options=options)
        except tf.errors.OpError:
            self._remove_failed(int(global_step))
            raise
        self._exists = True
        logging.info("Saved checkpoint %s.", path)
        return path

    def _agent_variables(self) -> Iterator[tuple[str, tf.Variable]]:
        """What is saved of the agent, its optimizers included.

        Other items are their owners' business: the best return so far may well begin at minus
        infinity.
        """
        agent = self._trackables.get(AGENT)
        if agent is None:
            return
        for item in trackable_view.TrackableView(agent).descendants():
            if isinstance(item, tf.Variable) and item.dtype.is_floating:
                yield item.name, item

    def _remove_failed(self, step: int) -> None:
        """Removes what a save has left half-done; a whole one of the same step stays."""
        files = tf.io.gfile.listdir(self._directory)
        self._remove_unfinished(files)
        own = [
            name for name in files if (match := _FILE_NAME.match(name)) and int(match[2]) == step
        ]
        if own and self._problem(step) is not None:
            for name in own:
                tf.io.gfile.remove(os.path.join(self._directory, name))

    def _remove_unfinished(self, files: list[str]) -> None:
        """Removes what no name says to be complete: of a save that failed, or was killed."""
        for name in files:
            if _UNFINISHED.match(name):
                path = os.path.join(self._directory, name)
                (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)

    def _readable_steps(self) -> list[int]:
        """Steps of the checkpoints to keep, oldest first; the last one has been verified."""
        files = tf.io.gfile.listdir(self._directory)
        found = sorted({int(match[2]) for match in map(_FILE_NAME.match, files) if match})
        bad = {}
        while found:
            problem = self._problem(found[-1])
            if problem is None:
                break
            bad[found.pop()] = problem
        if found:
            for step, problem in bad.items():
                self._quarantine(step, problem)
            return found
        if bad or _INDEX_FILE in files:
            raise errors.CheckpointError(self._nothing_readable(bad))
        return []

    def _problem(self, step: int) -> str | None:
        """Why the checkpoint of `step` cannot be read; None if it can."""
        prefix = self._prefix(step)
        try:
            reader = tf.train.load_checkpoint(prefix)
            for name in reader.get_variable_to_shape_map():
                value = np.asarray(reader.get_tensor(name))
                if name.startswith(f"{AGENT}/") and not finite.is_finite(value):
                    return f"{name} is not finite: {finite.describe(value)}"
        except _ACCESS_ERRORS as error:
            raise errors.CheckpointError(f"{prefix} cannot be accessed: {error}") from error
        # TensorFlow reports damage as its own errors, IndexError, ValueError or RuntimeError.
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {str(error).strip() or 'no message'}"
        return None

    def _quarantine(self, step: int, problem: str) -> None:
        corrupt = os.path.join(self._directory, CORRUPT_DIR)
        tf.io.gfile.makedirs(corrupt)
        for name in tf.io.gfile.listdir(self._directory):
            match = _FILE_NAME.match(name)
            if match and int(match[2]) == step:
                source = os.path.join(self._directory, name)
                tf.io.gfile.rename(source, os.path.join(corrupt, name), overwrite=True)
        logging.error(
            "Checkpoint %s cannot be read (%s): moved to %s; an older one is used.",
            self._prefix(step),
            problem,
            corrupt,
        )

    def _nothing_readable(self, bad: dict) -> str:
        if bad:
            tried = "\n".join(f"  {self._prefix(step)}: {why}" for step, why in bad.items())
        else:
            tried = f"  only the index file {os.path.join(self._directory, _INDEX_FILE)} is there"
        return (
            f"{self._directory} has held checkpoints but none can be read:\n{tried}\n"
            "Training does not start afresh over them. Put a good copy back, or, to start afresh "
            "on purpose, move this directory away or train in another one."
        )

    def _write_index(self, steps: list[int]) -> None:
        """Makes TensorFlow's index say what is there, so that its manager rotates all of it."""
        lines = [f'model_checkpoint_path: "ckpt-{steps[-1]}"']
        lines += [f'all_model_checkpoint_paths: "ckpt-{step}"' for step in steps]
        for step in steps:
            name = self._prefix(step) + ".index"
            # A damaged older one, not looked at yet, may lack its index.
            written = tf.io.gfile.stat(name).mtime_nsec / 1e9 if tf.io.gfile.exists(name) else 1.0
            lines.append(f"all_model_checkpoint_timestamps: {written!r}")
        path = os.path.join(self._directory, _INDEX_FILE)
        try:
            with tf.io.gfile.GFile(path + ".new", "w") as file:
                file.write("\n".join(lines) + "\n")
        except tf.errors.OpError:
            self._remove_unfinished(tf.io.gfile.listdir(self._directory))
            raise
        tf.io.gfile.rename(path + ".new", path, overwrite=True)

    def _prefix(self, step: int) -> str:
        return os.path.join(self._directory, f"ckpt-{step}")


def checked_items(items: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of what a caller wants saved besides the agent, by name.

    Raises:
      ValueError: If a name is taken or not an identifier.
    """
    items = dict(items or {})
    for name in items:
        if name in ("agent", "train_step", "save_counter", "ckpt_dir", "max_to_keep"):
            raise ValueError(f"checkpoint_items[{name!r}]: the name is taken; choose another")
        if not name.isidentifier():
            raise ValueError(f"checkpoint_items[{name!r}]: the name must be an identifier")
    return items
