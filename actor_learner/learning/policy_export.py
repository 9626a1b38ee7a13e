"""SavedModels of an agent's policies as they are now."""

from __future__ import annotations

import os
import shutil

import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.learning import learner, triggers


def export_policies(directory: str, agent: tf_agent.TFAgent, train_step: tf.Variable) -> None:
    """Writes the policy, collect policy and greedy policy, in place of any earlier ones."""
    for name in (
        learner.RAW_POLICY_SAVED_MODEL_DIR,
        learner.COLLECT_POLICY_SAVED_MODEL_DIR,
        learner.GREEDY_POLICY_SAVED_MODEL_DIR,
    ):
        # Of an earlier process of this run; the trigger leaves finished exports as they are.
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
    export = triggers.PolicySavedModelTrigger(directory, agent, train_step, interval=1)
    export(int(train_step.numpy()), force_trigger=True)
