"""The agent of one job of a run, built from the run's specs with its own variables."""

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
      experiment: The experiment that is trained.
      time_step_spec: Time step spec of the environment, for one lane.
      action_spec: Action spec of the environment.
      num_lanes: Lanes of each actor.
      run_id: Identifier of the run; part of the names of its tables.
      seed: Seed of networks, and of Python, NumPy and TensorFlow in this process.
      lanes_apart: Whether an actor's lanes step independently (`lanes.are_apart`).
      policy: Of a further policy of a world with many agents, the name: see `further_model`.
      turn_ticks: As in `Experiment.plan`.

    Raises:
      errors.ConfigError: If the experiment is deterministic, which separate jobs cannot be.
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
        lanes_apart: bool = False,
        policy: str | None = None,
        turn_ticks: int = 0,
    ) -> None:
        if experiment.deterministic:
            raise errors.ConfigError(
                "Experiment.deterministic is for one process: what separate jobs do at the same "
                "time is never the same twice. Use `actor-learner train`"
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
        self.plan = experiment.plan(
            self.algorithm,
            num_lanes,
            run_id,
            lanes_apart=lanes_apart,
            policy=policy,
            turn_ticks=turn_ticks,
        )

    @property
    def agent(self) -> Any:
        return self.algorithm.agent

    def published_variables(self) -> list[tf.Variable]:
        """Returns the learner's variables that other jobs need, in the same order everywhere.

        The counters are not among them: they are announced separately. Nor are variables without a
        fixed shape, such as R2D2's epsilons: those belong to a process and its lanes.
        """
        variables: list[tf.Variable] = []
        seen = {id(self.train_step), id(self.environment_step)}
        for policy in (self.agent.collect_policy, self.agent.policy):
            for variable in policy.variables():
                if id(variable) not in seen and variable.shape.is_fully_defined():
                    seen.add(id(variable))
                    variables.append(variable)
        return variables

    def contract(self, run_id: str) -> contract_lib.Contract:
        """Returns the contract of a run that this job fits into."""
        return contract_lib.describe(
            run_id,
            self.time_step_spec,
            self.action_spec,
            self.algorithm,
            self.plan,
            self.published_variables(),
        )
