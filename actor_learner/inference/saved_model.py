"""Loads exported policies."""

from tf_agents.environments import py_environment
from tf_agents.policies import py_tf_eager_policy


def load(
    path: str, env: py_environment.PyEnvironment
) -> py_tf_eager_policy.SavedModelPyTFEagerPolicy:
    """Loads a SavedModel policy, for an actor or evaluator that drives `env`.

    Args:
      path: Directory that `PolicySavedModelTrigger` or `BestPolicyTrigger` wrote.
      env: Tells whether time steps come with a `[lanes]` dimension.
    """
    return py_tf_eager_policy.SavedModelPyTFEagerPolicy(
        path, load_specs_from_pbtxt=True, batch_time_steps=not env.batched
    )
