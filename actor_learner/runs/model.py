"""The agent as one job of a run has it: built from the run's specs, with variables of its own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.specs import tensor_spec

from actor_learner import experiment as experiment_lib
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.runs import contract as contract_lib
from actor_learner.support import errors


class Model:
    """Algorithm, plan and counters of one job.

    Args:
      experiment: What is trained.
      time_step_spec: Of the environment, for one lane.
      action_spec: Of the environment.
      num_lanes: Lanes of each actor.
      run_id: Of the run; the names of its tables carry it.
      seed: Of networks and of random numbers in this process.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        time_step_spec: Any,
        action_spec: Any,
        num_lanes: int,
        *,
        run_id: str,
        seed: int,
    ) -> None:
        if experiment.deterministic:
            raise errors.ConfigError(
                "Experiment.deterministic is for one process: what separate jobs do at the same "
                "time is never twice the same. Use `actor-learner train`"
            )
        tf.keras.utils.set_random_seed(seed)
        self.time_step_spec = tensor_spec.from_spec(time_step_spec)
        self.action_spec = tensor_spec.from_spec(action_spec)
        self.train_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_step")
        self.environment_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.algorithm = experiment.make_algorithm_for(
            algorithm_lib.World(
                time_step_spec=self.time_step_spec,
                action_spec=self.action_spec,
                train_step=self.train_step,
                environment_step=self.environment_step,
                num_lanes=num_lanes,
                total_lanes=num_lanes,
            )
        )
        self.plan = experiment.plan(self.algorithm, num_lanes, run_id)

    @property
    def agent(self) -> Any:
        return self.algorithm.agent

    def published_variables(self) -> list[tf.Variable]:
        """What actors and evaluators need of the learner, in an order that all jobs share.

        The counters are not among them: they are announced on their own.
        """
        variables: list[tf.Variable] = []
        seen = {id(self.train_step), id(self.environment_step)}
        for policy in (self.agent.collect_policy, self.agent.policy):
            for variable in policy.variables():
                if id(variable) not in seen:
                    seen.add(id(variable))
                    variables.append(variable)
        return variables

    def contract(self, run_id: str) -> contract_lib.Contract:
        """The contract of a run that this job would fit into."""
        return contract_lib.describe(
            run_id,
            self.time_step_spec,
            self.action_spec,
            self.algorithm,
            self.plan,
            self.published_variables(),
        )
