"""SavedModels of an agent's policies as they are now."""

from __future__ import annotations

import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.learning import triggers
from actor_learner.support import finite, unsaved


def export_policies(directory: str, agent: tf_agent.TFAgent, train_step: tf.Variable) -> None:
    """Writes the policy, collect policy and greedy policy, in place of any earlier ones.

    On a full disk the earlier ones stay, and the ledger of what is unsaved tries again.

    Raises:
      errors.NotFiniteError: If a variable is not finite; earlier ones are left as they are then.
    """
    finite.require_finite(
        agent.collect_policy.variables(), f"the policies are not exported to {directory}"
    )

    def write() -> None:
        export = triggers.PolicySavedModelTrigger(
            directory, agent, train_step, interval=1, replace=True
        )
        export(int(train_step.numpy()), force_trigger=True)

    unsaved.ledger().attempt("the exported policies", write, where=directory)
