"""What is built, in each job of a run, for the policies that are trained beside `main`."""

from __future__ import annotations

from typing import Any

from tf_agents.trajectories import time_step as ts

from actor_learner import experiment as experiment_lib
from actor_learner.environments import agent_world
from actor_learner.runs import contract as contract_lib
from actor_learner.runs import model as model_lib
from actor_learner.support import seeds

TURN_TICKS = "turn ticks"
"""Key in the contract of a further policy: batched steps of one turn of an actor."""


def trained_policies(env: Any) -> list[str]:
    """Names of the policies that are trained beside `main`; most environments have none."""
    return env.trained_policies if isinstance(env, agent_world.AgentWorld) else []


def make(
    experiment: experiment_lib.Experiment,
    env: agent_world.AgentWorld,
    policy: str,
    *,
    run_id: str,
    seed: int,
    turn_ticks: int,
) -> model_lib.Model:
    """Builds the agent of a further policy, with its own variables.

    Args:
      experiment: The experiment of the run; `AgentSpec` says what differs.
      env: The world that its agents act in.
      policy: Name of the policy.
      run_id: Identifier of the run.
      seed: Seed of the job; that of the policy is derived from it.
      turn_ticks: Batched steps of one turn of an actor.
    """
    group = env.groups[policy]
    return model_lib.Model(
        experiment.for_policy(env.spec_of(policy)),
        ts.time_step_spec(group.observation_spec),
        group.action_spec,
        group.num_slots,
        run_id=run_id,
        seed=seeds.of(seed, "policy", policy),
        lanes_apart=env.turn_based,
        policy=policy,
        turn_ticks=turn_ticks,
    )


def contract(made: model_lib.Model, run_id: str, turn_ticks: int) -> contract_lib.Contract:
    """Returns the contract of a further policy, which all jobs that have it must agree on."""
    return {**made.contract(run_id), TURN_TICKS: turn_ticks}
