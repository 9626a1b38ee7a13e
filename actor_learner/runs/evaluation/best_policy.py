"""Keeps the best of the policies that evaluators have rated, wherever they are.

An evaluator sends every policy that is the best it has rated, as arrays. Two scores come with it:
that of the episodes that chose it, and that of others that confirm it. The learner compares all
policies by the former and shows the latter. Only the learner writes `best/` and the tag `best` of
the parameter store.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any, Callable

import numpy as np

from actor_learner import experiment as experiment_lib
from actor_learner.learning import best_policy_trigger, evaluation
from actor_learner.parameters import packing as packing_lib
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables as variables_lib
from actor_learner.runs import model as model_lib
from actor_learner.support import counters, unsaved

POLICY = "policy"
"""Name of the policy in the run's parameter store."""

BEST = "best"
"""Tag of the best policy."""

_STORED = "the best policy in the parameter store"


class BestPolicyKeeper:
    """Writes the best of all candidates, in the learner's process.

    A candidate is assigned to the keeper's own policy, which is built when the first one arrives,
    and is saved from there. Nothing that came over a socket is executed.

    Args:
      make_model: Builds a model like the learner's, with variables of its own.
      directory: `best/` of the run directory, replaced as a whole.
      store: The run's parameter store, where the best version is tagged.
      target_return: A policy that is confirmed to reach this is better than one that is not.
      kept: How many versions without a tag stay in the store; None removes none.

    Raises:
      ValueError: If `directory` holds anything but a best policy.
    """

    def __init__(
        self,
        make_model: Callable[[], model_lib.Model],
        directory: pathlib.Path,
        store: store_lib.ParameterStore,
        target_return: float | None = None,
        *,
        kept: int | None = None,
    ) -> None:
        self._make_model = make_model
        self._kept = kept
        self._directory = str(directory)
        self._store = store
        self._target_return = target_return
        self._model: model_lib.Model | None = None
        self._packing: packing_lib.Packing | None = None
        self._trigger: best_policy_trigger.BestPolicyTrigger | None = None
        # Score of a candidate that waits for room on the disk to be stored.
        self._waiting_score: dict[str, Any] | None = None
        best_policy_trigger.refuse_foreign_files(self._directory)
        self._first = best_policy_trigger.read_best_score(self._directory)

    @property
    def best(self) -> dict[str, Any] | None:
        """The score of the best policy; None if there is none yet."""
        return self._first if self._trigger is None else self._trigger.best

    def take(self, score: dict[str, Any], packed: np.ndarray) -> None:
        """Keeps a candidate if it is the best so far; on a full disk it waits in memory.

        The directory and the store are compared separately: a learner may have died after writing
        only one of them.

        Args:
          score: As `evaluation.score_of` makes it.
          packed: The policy's variables, as the learner publishes them.

        Raises:
          ValueError: If the array does not fit the policy.
          errors.NotFiniteError: If a variable is not finite; nothing is kept.
        """
        if not math.isfinite(score["mean"]):
            return
        for_store = evaluation.supersedes(score, self._stored_score(), self._target_return)
        for_run = (
            evaluation.supersedes(score, self._first, self._target_return)
            if self._trigger is None
            else self._trigger.is_better(score)
        )
        if not for_store and not for_run:
            return
        self._build()
        if packed.shape != (self._packing.size,):
            raise ValueError(f"{packed.shape} bytes where the policy has {self._packing.size}")
        self._packing.assign(packed)
        counters.assign(self._model.train_step, score["train_step"])
        if for_run:
            self._trigger.keep(score)
        if for_store:
            values = variables_lib.values_of(self._model.agent.policy)
            stored = unsaved.ledger().attempt(
                _STORED, lambda: self._push(values, score), where=self._store.directory
            )
            if not stored:
                self._waiting_score = score

    def _build(self) -> None:
        if self._model is not None:
            return
        model = self._make_model()
        self._packing = packing_lib.Packing(model.published_variables())
        self._trigger = best_policy_trigger.BestPolicyTrigger(
            experiment_lib.greedy(model.agent.policy),
            self._directory,
            train_step=model.train_step,
            target_return=self._target_return,
        )
        self._model = model

    def _push(self, values: Any, score: dict[str, Any]) -> bool:
        metadata = {
            "environment_steps": score["environment_step"],
            "mean_return": score["mean"],
            "std_return": score["std"],
            "episodes": score["episodes"],
            "choosing_mean_return": score.get(evaluation.CHOSEN_BY, score)["mean"],
        }
        self._store.push(POLICY, values, score["train_step"], tags=(BEST,), metadata=metadata)
        if self._kept is not None:
            self._store.gc(POLICY, keep=self._kept)  # The former best has lost its tag.
        self._waiting_score = None
        return True

    def _stored_score(self) -> dict[str, Any] | None:
        """Returns the score of the version tagged `best`; None if there is no such score.

        On a full disk it is the score of the candidate that waits, so that no worse one takes its
        place.
        """
        if self._waiting_score is not None:
            return self._waiting_score
        try:
            stored = self._store.list(POLICY)
        except store_lib.ParametersNotFoundError:
            return None
        for version in stored:
            mean = version.metadata.get("mean_return")
            if BEST in version.tags and mean is not None and math.isfinite(mean):
                choosing = version.metadata.get("choosing_mean_return", mean)
                return {"mean": mean, evaluation.CHOSEN_BY: {"mean": choosing}}
        return None
