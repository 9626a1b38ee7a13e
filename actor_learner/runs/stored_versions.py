"""Stores versions of the learner's policy in the parameter store of the run."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple

from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs import model as model_lib
from actor_learner.runs.evaluation import best_policy
from actor_learner.support import configurable, counters, errors, unsaved


class Keeping(NamedTuple):
    """How often versions are stored, and how many stay: see `stored_versions`."""

    interval_seconds: float
    kept: int


@configurable.register
def stored_versions(interval_seconds: float = 60.0, kept: int = 5) -> Keeping:
    """How many versions of the policy a run of separate jobs stores.

    Args:
      interval_seconds: Time between two versions, each a file as large as the policy. The last
        version is always stored.
      kept: How many to keep, besides those with a tag such as `best`.

    Raises:
      errors.ConfigError: If a value is out of range.
    """
    if not interval_seconds >= 0:
        raise errors.ConfigError(
            f"stored_versions.interval_seconds must be at least 0, got {interval_seconds!r}"
        )
    if kept < 1:
        raise errors.ConfigError(
            f"stored_versions.kept must be at least 1, the latest, got {kept!r}"
        )
    return Keeping(interval_seconds, kept)


class StoredVersions:
    """Stores a version at intervals, and keeps the last few and those with a tag.

    Args:
      store: The parameter store.
      model: The model of the learner.
      epoch: Epoch of the learner; a superseded one stores nothing.
      clock: Returns seconds.

    Raises:
      errors.ConfigError: As `stored_versions`, which sets the interval and the number.
    """

    def __init__(
        self,
        store: store_lib.ParameterStore,
        model: model_lib.Model,
        epoch: epoch_lib.Epoch,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._model = model
        self._epoch = epoch
        self._keeping = stored_versions()
        self._clock = clock
        self._version, self._pushed_at = -1, clock()

    def push_if_due(self) -> None:
        if self._clock() - self._pushed_at >= self._keeping.interval_seconds:
            self.push()

    def push(self) -> None:
        """Stores the current policy, unless this version was stored before.

        On a full disk the `unsaved` ledger stores the policy of a later time, once there is room.
        """
        if int(counters.read(self._model.train_step)) != self._version:
            self._pushed_at = self._clock()
            unsaved.ledger().attempt(
                "the stored version of the policy", self._push, where=self._store.directory
            )

    def _push(self) -> None:
        self._epoch.require_latest()
        version = int(counters.read(self._model.train_step))
        self._store.push(
            best_policy.POLICY,
            variables.values_of(self._model.agent.policy),
            version,
            metadata={
                "environment_steps": int(counters.read(self._model.environment_step)),
                "epoch": self._epoch.number,
            },
        )
        self._version = version
        self._store.gc(best_policy.POLICY, keep=self._keeping.kept)
