"""The best policy on its way from an evaluator without a run directory to the learner, who has one.

An evaluator beside the learner's files keeps the best policy itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import reverb
import tensorflow as tf

from actor_learner.parameters import reverb_variable_container as container_lib
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables as variables_lib

TABLE = "best"
POLICY = "policy"
"""Name of the policy in the run's parameter store."""

BEST = "best"
"""The tag of the best one."""


def best_table(policy: Any) -> reverb.Table:
    """The table that carries the variables of `policy`."""
    return container_lib.variable_table(_nest(policy.variables(), 0), TABLE)


def metadata_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the parameter store is to know about a policy, from an evaluator's message."""
    return {
        "environment_steps": result["environment_step"],
        "mean_return": result["mean"],
        "std_return": result["std"],
        "episodes": result["episodes"],
    }


class Sender:
    """The evaluator's end.

    Args:
      address: `host:port` of the replay server.
      policy: What is evaluated.
    """

    def __init__(self, address: str, policy: Any) -> None:
        self._container = container_lib.ReverbVariableContainer(address, (TABLE,))
        self._policy = policy

    def send(self, version: int) -> None:
        """Sends the policy as it is now; returns when the server has it.

        Raises:
          errors.ReplayTimeoutError: If the server does not take it in time.
        """
        self._container.push(_nest(self._policy.variables(), version), TABLE)


class Keeper:
    """The learner's end: puts the best policy into the parameter store, tagged.

    Args:
      address: `host:port` of the replay server.
      policy: The learner's, for the names of its variables.
      store: Where to.
    """

    def __init__(self, address: str, policy: Any, store: store_lib.ParameterStore) -> None:
        self._container = container_lib.ReverbVariableContainer(address, (TABLE,))
        self._names = list(variables_lib.named_variables(policy))
        self._store = store

    def keep(self, result: Mapping[str, Any]) -> bool:
        """Keeps the policy that an evaluator has sent before this message, if it is the best yet.

        Returns:
          Whether it was kept. If the evaluator has sent a better one since, that one's message is
          on its way.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer.
        """
        if result["mean"] <= self._best_mean():
            return False
        pulled = self._container.pull(TABLE)
        if int(pulled[container_lib.TRAIN_STEP_KEY]) != result["train_step"]:
            return False
        values = [value.numpy() for value in pulled[container_lib.POLICY_KEY]]
        self._store.push(
            POLICY,
            dict(zip(self._names, values)),
            result["train_step"],
            tags=(BEST,),
            metadata=metadata_of(result),
        )
        return True

    def _best_mean(self) -> float:
        try:
            stored = self._store.list(POLICY)
        except store_lib.ParametersNotFoundError:
            return float("-inf")
        means = [version.metadata.get("mean_return") for version in stored if BEST in version.tags]
        return max((mean for mean in means if mean is not None), default=float("-inf"))


def _nest(variables: Sequence[Any], version: int) -> dict[str, Any]:
    return {
        container_lib.POLICY_KEY: list(variables),
        container_lib.TRAIN_STEP_KEY: tf.constant(version, tf.int64),
    }
