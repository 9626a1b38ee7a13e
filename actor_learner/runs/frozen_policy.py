"""Policies that act for agents of a world but are not trained: `AgentSpec.frozen`."""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.trajectories import time_step as ts

from actor_learner import action_mask, run_directory
from actor_learner.inference import protocol
from actor_learner.inference import python as python_inference
from actor_learner.runs import further_policy, loaded_policy
from actor_learner.support import configurable


@configurable.register
def frozen_policy(
    num_slots: int,
    time_step_spec: ts.TimeStep,
    action_spec: Any,
    seed: int,
    *,
    run: str,
    which: str = loaded_policy.BEST,
) -> FrozenPolicy:
    """Loads a policy of an earlier run.

    ```
    AgentSpec.frozen = @frozen_policy
    frozen_policy.run = 'runs/…'
    ```

    Args:
      num_slots: Not used; `AgentWorld` passes it, like the next three.
      time_step_spec: Not used.
      action_spec: Not used.
      seed: Not used.
      run: A run directory, or an exported policy (a SavedModel).
      which: As in `load_policy`: `best` and `last` act deterministically, `collect` explores.
    """
    del num_slots, time_step_spec, action_spec, seed  # The policy itself checks its observations.
    return FrozenPolicy(loaded_policy.load_policy(run, which))


@configurable.register
def random_policy(
    num_slots: int, time_step_spec: ts.TimeStep, action_spec: Any, seed: int
) -> python_inference.RandomInference:
    """Chooses uniformly among the legal actions."""
    return python_inference.RandomInference(
        action_spec,
        (),
        num_slots,
        seed,
        mask=action_mask.find(time_step_spec.observation, action_spec),
    )


def furnish(env: Any, run: run_directory.RunDirectory) -> None:
    """Installs a run's exported policies, acting greedily, for agents that `main` does not play.

    Args:
      env: Any environment; one with a single policy is left as it is.
      run: The run whose `agents/` has the policies.
    """
    for policy in getattr(env, "trained_policies", []):
        exported = further_policy.directory_of(run, policy).policies / "greedy_policy"
        env.install(policy, FrozenPolicy(loaded_policy.load_policy(exported)))


class FrozenPolicy:
    """Presents a loaded policy as an inference stream."""

    def __init__(self, policy: loaded_policy.LoadedPolicy) -> None:
        self._policy = policy

    def reset(self) -> None:
        """Begins new episodes."""
        self._policy.reset()

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        """Chooses actions for all slots."""
        is_first = np.asarray(time_step.step_type) == ts.StepType.FIRST
        return protocol.Response(self._policy.act(time_step.observation, is_first=is_first))
