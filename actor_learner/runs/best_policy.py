"""The best policy on its way from the evaluators, wherever they are, to the learner, who keeps it.

An evaluator sends every policy that is the best it has rated, with the score of the episodes that
chose it and of others that did not; the learner compares all of them by the former, shows the
latter, and alone writes `best/` and the tag `best` of the parameter store. A candidate travels as
one archive: the SavedModel, its score, and its variables by name.
"""

from __future__ import annotations

import io
import json
import math
import os
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from absl import logging
from reverb import errors as reverb_errors

from actor_learner.learning import evaluation
from actor_learner.parameters import archive
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables as variables_lib
from actor_learner.support import errors, reverb_calls

TABLE = "best"
POLICY = "policy"
"""Name of the policy in the run's parameter store."""

BEST = "best"
"""The tag of the best one."""

_COLUMN = "candidate"
_VARIABLES_FILE = "variables.npz"
# While the learner is away no new version is published, so that each evaluator sends one at most.
_MOST_CANDIDATES = 64
_SECONDS = 60.0
_ASK_SECONDS = 5.0  # The learner has other things to do while its server is away.


def best_table() -> reverb.Table:
    """The table that candidates wait in, the oldest first, until the learner has seen to them."""
    return reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=_MOST_CANDIDATES,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={_COLUMN: tf.TensorSpec([1, None], tf.uint8)},
    )


def send(
    client: reverb.Client,
    directory: str | os.PathLike,
    policy: Any,
    timeout_seconds: float = _SECONDS,
) -> None:
    """Sends a candidate; returns when the server has it.

    Args:
      client: Of the replay server.
      directory: What `BestPolicyTrigger` has written.
      policy: The same policy, for its variables.
      timeout_seconds: How long to wait for that; `reverb_calls.giving_up_when` cuts it short.

    Raises:
      errors.ReplayTimeoutError: If the server does not take it in time.
    """
    content = np.frombuffer(_packed(pathlib.Path(directory), policy), np.uint8)
    # A writer for each: those of one writer would have to have one size. Not in a `with`: its end
    # waits, without a deadline, for a server that has not answered within one.
    writer = client.trajectory_writer(1, validate_items=False)
    writer.append({_COLUMN: content})
    item = {_COLUMN: writer.history[_COLUMN][-1:]}
    writer.create_item(TABLE, priority=1.0, trajectory=item)
    try:
        reverb_calls.wait_in_slices(lambda ms: writer.flush(0, ms), timeout_seconds)
    except reverb_errors.ReverbError as error:
        raise errors.ReplayTimeoutError(
            f"the replay server at {client.server_address} has not taken the best policy "
            f"within {timeout_seconds:g} s"
        ) from error


class Keeper:
    """The learner's end: keeps the best of all candidates, in one place.

    Args:
      client: Of the replay server.
      directory: `best/` of the run directory, replaced as a whole.
      store: The run's parameter store, where the best version is tagged.
      target_return: A policy that is confirmed to reach this is better than one that is not.

    Attributes:
      best: The score of the best one; None if there is none yet.
    """

    def __init__(
        self,
        client: reverb.Client,
        directory: pathlib.Path,
        store: store_lib.ParameterStore,
        target_return: float | None = None,
    ) -> None:
        self._client = client
        self._directory = str(directory)
        self._store = store
        self._target_return = target_return
        self.best = evaluation.read_best_score(self._directory)

    @property
    def directory(self) -> str:
        return self._directory

    def take(self) -> None:
        """Sees to all candidates that wait; one that is not kept now is there the next time.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer.
        """
        while reverb_calls.fetch_table(self._client, TABLE, _ASK_SECONDS).current_size:
            key, content = self._call(self._oldest)
            self._keep_if_best(content)
            # Only now: a learner that dies before finds it again.
            self._call(lambda: self._client.mutate_priorities(TABLE, deletes=[key]))  # noqa: B023

    def _oldest(self) -> tuple[int, bytes]:
        samples = self._client.sample(TABLE, emit_timesteps=False, unpack_as_table_signature=True)
        sample = next(iter(samples))
        return int(sample.info.key), np.asarray(sample.data[_COLUMN])[0].tobytes()

    def _keep_if_best(self, content: bytes) -> None:
        """Both places are compared for themselves: a learner may have died between the two."""
        with zipfile.ZipFile(io.BytesIO(content)) as candidate:
            score = json.loads(candidate.read(evaluation.SCORE_FILE))
            if not math.isfinite(score["mean"]):
                return  # Of an evaluator with earlier code; it would be the best for good.
            if evaluation.supersedes(score, _stored_score(self._store), self._target_return):
                self._push(candidate, score)
            if evaluation.supersedes(score, self.best, self._target_return):
                self._replace(candidate)
                self.best = score
                logging.info(
                    "Best policy so far: mean return %.2f at train step %d, in %s.",
                    score["mean"],
                    score["train_step"],
                    self._directory,
                )

    def _push(self, candidate: zipfile.ZipFile, score: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            _, values = archive.read(candidate.extract(_VARIABLES_FILE, temporary))
        metadata = {
            "environment_steps": score["environment_step"],
            "mean_return": score["mean"],
            "std_return": score["std"],
            "episodes": score["episodes"],
            "choosing_mean_return": score.get(evaluation.CHOSEN_BY, score)["mean"],
        }
        self._store.push(POLICY, values, score["train_step"], tags=(BEST,), metadata=metadata)

    def _replace(self, candidate: zipfile.ZipFile) -> None:
        new = self._directory + evaluation.NEW
        shutil.rmtree(new, ignore_errors=True)
        try:
            for name in candidate.namelist():
                if name not in (evaluation.SCORE_FILE, _VARIABLES_FILE):
                    candidate.extract(name, new)
            # Last of all: its presence says that the directory is complete.
            part = os.path.join(new, evaluation.SCORE_FILE + ".part")
            pathlib.Path(part).write_bytes(candidate.read(evaluation.SCORE_FILE))
            os.replace(part, os.path.join(new, evaluation.SCORE_FILE))
        except OSError:  # A full disk: none of it is of use.
            shutil.rmtree(new, ignore_errors=True)
            raise
        evaluation.put_in_place(self._directory)

    def _call(self, call: Any) -> Any:
        def no_answer() -> errors.ReplayTimeoutError:
            return reverb_calls.no_answer(self._client.server_address, _SECONDS)

        try:
            return reverb_calls.call_with_deadline(call, _SECONDS, no_answer)
        except (RuntimeError, reverb_errors.ReverbError) as error:  # It died meanwhile.
            raise no_answer() from error


def _packed(directory: pathlib.Path, policy: Any) -> bytes:
    """The archive of a candidate."""
    score = json.loads((directory / evaluation.SCORE_FILE).read_text())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed, tempfile.TemporaryDirectory() as temporary:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(directory).as_posix())
        variables = os.path.join(temporary, _VARIABLES_FILE)
        values = variables_lib.values_of(policy)
        archive.save(variables, values, name=POLICY, version=score["train_step"])
        packed.write(variables, _VARIABLES_FILE)
    return content.getvalue()


def _stored_score(store: store_lib.ParameterStore) -> dict[str, Any] | None:
    """What is known of the version that is tagged `best`; None if there is none, or no number."""
    try:
        stored = store.list(POLICY)
    except store_lib.ParametersNotFoundError:
        return None
    for version in stored:
        mean = version.metadata.get("mean_return")
        if BEST in version.tags and mean is not None and math.isfinite(mean):
            choosing = version.metadata.get("choosing_mean_return", mean)
            return {"mean": mean, evaluation.CHOSEN_BY: {"mean": choosing}}
    return None
