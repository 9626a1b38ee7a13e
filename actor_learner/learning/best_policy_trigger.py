"""Keeps the best policy of a run in a directory of its own, with its score."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow as tf
from absl import logging
from tf_agents.policies import policy_saver, tf_policy

from actor_learner.learning import evaluation, held_policy
from actor_learner.support import configurable, disk_space, finite, unsaved

POLICY_DIR = "policy"
SCORE_FILE = "score.json"
NEW, _OLD = ".new", ".old"
BEST_POLICY = "the best policy"
"""Its name in the ledger of what is unsaved."""


@configurable.register
class BestPolicyTrigger(evaluation.BestScore):
    """Keeps the policy with the highest mean return: an observer of an `EvaluationTrigger`.

    The score that it keeps, and shows, is that of the confirming episodes where there are some.

    `<directory>/policy` is the SavedModel and `<directory>/score.json` its score; the directory
    belongs to this class and holds nothing else. Both are written to `<directory>.new` and change
    place together, by renaming, so that policy and score always belong together. A process killed
    between two renames leaves a complete `.new` or `.old` beside it, which `read_best_score` (and
    so the next construction) puts in place.

    On a full disk the policy is held in memory and written once there is room, unless a better one
    comes before; `best` is what is written.
    """

    def __init__(
        self,
        policy: tf_policy.TFPolicy,
        directory: str,
        *,
        train_step: tf.Variable,
        target_return: float | None = None,
    ):
        """Reads the score that an earlier run left; writes nothing.

        Args:
          policy: The policy that is evaluated, usually the greedy one.
          directory: Usually `<run>/best`; a local path.
          train_step: Saved with the policy.
          target_return: A policy that is confirmed to reach this is better than one that is not.

        Raises:
          ValueError: If `directory` holds anything but a best policy.
        """
        super().__init__(target_return)
        self._directory = os.fspath(directory).rstrip(os.sep)
        self._policy = policy
        self._train_step = train_step
        self._saver: policy_saver.PolicySaver | None = None
        self._graph_written = False
        self._held: tuple[dict[str, Any], held_policy.HeldPolicy] | None = None
        refuse_foreign_files(self._directory)
        self.best = read_best_score(self._directory)

    def is_better(self, score: Mapping[str, Any]) -> bool:
        """Whether a score is better than the best so far, one that is not written included."""
        best = self.best if self._held is None else self._held[0]
        return evaluation.supersedes(score, best, self._target_return)

    def keep(self, score: dict[str, Any]) -> None:
        """Saves the policy as it is now, with its score, in place of the best so far.

        Raises:
          errors.NotFiniteError: If a variable of it is not finite; the best so far is left.
        """
        finite.require_finite(
            self._policy.variables(), f"the policy is not kept as the best in {self._directory}"
        )
        self._discard_held()
        try:
            self._write(score, self._save_policy)
        except Exception as error:
            if not disk_space.is_out_of_space(error, self._directory):
                raise
            held = held_policy.HeldPolicy(self._saver.save)
            self._held = (score, held)
            unsaved.ledger().note(
                BEST_POLICY,
                error,
                where=self._directory,
                retry=self._write_held,
                detail=lambda: f"mean return {score['mean']:g}",
            )
        else:
            unsaved.ledger().clear(BEST_POLICY)

    @property
    def is_held(self) -> bool:
        """Whether the best policy so far waits for room on the disk."""
        return self._held is not None

    def _write_held(self) -> None:
        if self._held is None:
            return
        score, held = self._held
        self._write(score, held.write)
        self._discard_held()

    def _discard_held(self) -> None:
        if self._held is not None:
            self._held[1].discard()
            self._held = None

    def _write(self, score: dict[str, Any], save_policy: Callable[[str], None]) -> None:
        new = self._directory + NEW
        shutil.rmtree(new, ignore_errors=True)
        try:
            save_policy(os.path.join(new, POLICY_DIR))
            # Last of all: its presence says that the directory is complete.
            with open(os.path.join(new, SCORE_FILE + ".part"), "w") as file:
                json.dump(score, file, indent=2, allow_nan=False)
                file.write("\n")
            os.replace(file.name, os.path.join(new, SCORE_FILE))
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        put_in_place(self._directory)
        self.best = score
        self._graph_written = True
        logging.info(
            "Best policy so far: mean return %.2f at train step %d, in %s.",
            score["mean"],
            score["train_step"],
            self._directory,
        )

    def _save_policy(self, path: str) -> None:
        if self._saver is None:
            self._saver = policy_saver.PolicySaver(
                self._policy, batch_size=None, train_step=self._train_step
            )
        if not self._graph_written:
            self._saver.save(path)
            return
        # The graph does not change between bests: writing the variables alone is 20 times faster.
        shutil.copytree(
            os.path.join(self._directory, POLICY_DIR),
            path,
            ignore=shutil.ignore_patterns(tf.saved_model.VARIABLES_DIRECTORY),
        )
        self._saver.save_checkpoint(path)


def put_in_place(directory: str) -> None:
    """Makes `<directory>.new`, which must be complete, the best policy, and removes the former."""
    new, old = directory + NEW, directory + _OLD
    shutil.rmtree(old, ignore_errors=True)
    if os.path.isdir(directory):
        os.rename(directory, old)
    os.rename(new, directory)
    shutil.rmtree(old, ignore_errors=True)


def read_best_score(directory: str) -> dict[str, Any] | None:
    """The score of the best policy in `directory`, after completing an interrupted replacement.

    Returns:
      mean, std, min, max, episodes, train_step, environment_step and, if these are of confirming
      episodes, `chosen_by` with the figures of those that chose it. None if there is no best yet;
      a score that is not finite, which earlier code could leave, is none.
    """
    directory = os.fspath(directory).rstrip(os.sep)
    score = _read_score(directory)
    for candidate in (directory + NEW, directory + _OLD):
        if score is None:
            score = _read_score(candidate)
            if score is not None:
                shutil.rmtree(directory, ignore_errors=True)
                os.rename(candidate, directory)
    return score


def _read_score(directory: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(directory, SCORE_FILE)) as file:
            score = json.load(file)
    except FileNotFoundError:
        return None
    return score if math.isfinite(score["mean"]) else None


def refuse_foreign_files(directory: str) -> None:
    """Refuses a directory to be replaced as a whole that holds anything but a best policy.

    Raises:
      ValueError: Names what it holds.
    """
    found = set(os.listdir(directory)) if os.path.isdir(directory) else set()
    foreign = sorted(found - {POLICY_DIR, SCORE_FILE})
    if foreign:
        raise ValueError(
            f"{directory} is to hold the best policy and is replaced as a whole, but it contains "
            f"{', '.join(foreign)}: choose another directory"
        )
