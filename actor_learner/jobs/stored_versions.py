"""The learner's policy as it was now and then, in the parameter store of the run."""

from __future__ import annotations

import time

from actor_learner.jobs import best_policy
from actor_learner.jobs import model as model_lib
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables

_INTERVAL_SECONDS = 60.0
_KEPT = 5


class StoredVersions:
    """Pushes a version about once per minute, and keeps the last few and those that have a tag.

    Args:
      store: Where to.
      model: The learner's.
    """

    def __init__(self, store: store_lib.ParameterStore, model: model_lib.Model) -> None:
        self._store = store
        self._model = model
        self._version, self._pushed_at = -1, time.monotonic()

    def push_if_due(self) -> None:
        if time.monotonic() - self._pushed_at >= _INTERVAL_SECONDS:
            self.push()

    def push(self) -> None:
        """Stores the policy as it is now, unless this version is stored already."""
        version = int(self._model.train_step.numpy())
        if version == self._version:
            return
        self._version, self._pushed_at = version, time.monotonic()
        self._store.push(
            best_policy.POLICY,
            variables.values_of(self._model.agent.policy),
            version,
            metadata={"environment_steps": int(self._model.environment_step.numpy())},
        )
        self._store.gc(best_policy.POLICY, keep=_KEPT)
