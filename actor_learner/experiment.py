"""The experiment: the parts that a gin file binds, and how much of everything there is to be."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable

import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.policies import greedy_policy, tf_policy
from tf_agents.specs import tensor_spec

from actor_learner import configurable, errors
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.environments import lanes as lanes_lib
from actor_learner.replay import lane_replay, sample_stream

EVALUATION_SEED_OFFSET = 1_000_003
"""Keeps the evaluation's environments apart from those that experience is collected in."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """The ratio of train steps to environment steps, counted from where a process began.

    Attributes:
      learn_from: Environment step at which learning begins, or goes on.
      train_step: Train steps taken by then.
      updates_per_step: Train steps per environment step from there.
    """

    learn_from: int
    train_step: int
    updates_per_step: float

    def updates_due(self, environment_step: int) -> int:
        """Train steps that should have been taken by `environment_step`."""
        steps = max(0, environment_step - self.learn_from)
        return self.train_step + int(steps * self.updates_per_step)


@configurable.register
class Experiment:
    """What is to be trained, on what, and for how long; every runner takes the same one.

    Args:
      environment: Makes the environment: `@GymnasiumEnvironment`, or any callable that returns a
        TF-Agents `PyEnvironment`. It is given `seed` and, for evaluation, `num_envs`, if it takes
        them.
      agent: Builds the agent: `@dqn`, `@sac`, ..., or any callable that takes a
        `World` and returns a `TFAgent` or an `Algorithm`.
      replay: The sample stream: `@LaneReplay()` (the default) or `@WindowReplay()`.
      environment_steps: Environment steps to train for, over all lanes.
      initial_random_steps: Environment steps taken at random before learning begins.
      updates_per_step: Train steps per environment step, after the random ones. 1 is one gradient
        step on `batch_size` transitions for each new transition.
      collect_steps: Environment steps collected between two calls of the learner. More cost less
        overhead, and act longer on one policy. None: at least 64, and one step of every lane.
      batch_size: Transitions per train step.
      target_return: Stop when an evaluation's mean return reaches this.
      evaluation_interval: Environment steps between evaluations; 0 evaluates only at the end.
      evaluation_episodes: Episodes per evaluation. Training waits while they run.
      evaluation_lanes: Lanes they run in; None is one per episode.
      metrics_window: Episodes that the reported return is the mean of.
      report_seconds: Seconds between lines of metrics.
      sample_timeout_seconds: How long the learner waits for a sample before it gives up.
      save_replay: Save the replay's contents with the final checkpoint, so that a resumed run
        starts with them. Costs disk space of about the replay's size, and seconds per gigabyte.
    """

    def __init__(
        self,
        environment: Callable[..., py_environment.PyEnvironment],
        agent: Callable[[algorithm_lib.World], Any],
        *,
        replay: sample_stream.SampleStream | None = None,
        environment_steps: int = 100_000,
        initial_random_steps: int = 1_000,
        updates_per_step: float = 1.0,
        collect_steps: int | None = None,
        batch_size: int = 64,
        target_return: float | None = None,
        evaluation_interval: int = 5_000,
        evaluation_episodes: int = 20,
        evaluation_lanes: int | None = None,
        metrics_window: int = 20,
        report_seconds: float = 1.0,
        sample_timeout_seconds: float = 60.0,
        save_replay: bool = False,
    ) -> None:
        at_least = {
            "environment_steps": (environment_steps, 1),
            "initial_random_steps": (initial_random_steps, 0),
            "collect_steps": (collect_steps, 1),
            "batch_size": (batch_size, 1),
            "evaluation_interval": (evaluation_interval, 0),
            "evaluation_episodes": (evaluation_episodes, 1),
            "evaluation_lanes": (evaluation_lanes, 1),
            "metrics_window": (metrics_window, 1),
        }
        for name, (value, least) in at_least.items():
            if value is not None and value < least:
                raise errors.ConfigError(f"Experiment.{name} must be at least {least}, got {value}")
        for name, value in (
            ("updates_per_step", updates_per_step),
            ("report_seconds", report_seconds),
            ("sample_timeout_seconds", sample_timeout_seconds),
        ):
            if value <= 0:
                raise errors.ConfigError(f"Experiment.{name} must be above 0, got {value}")
        if initial_random_steps >= environment_steps:
            raise errors.ConfigError(
                f"Experiment.initial_random_steps ({initial_random_steps}) leaves nothing of the "
                f"{environment_steps} environment_steps to learn from"
            )
        self.environment = environment
        self.agent = agent
        self.replay = replay or lane_replay.LaneReplay()
        self.environment_steps = environment_steps
        self.initial_random_steps = initial_random_steps
        self.updates_per_step = updates_per_step
        self._collect_steps = collect_steps
        self.batch_size = batch_size
        self.target_return = target_return
        self.evaluation_interval = evaluation_interval
        self.evaluation_episodes = evaluation_episodes
        self.evaluation_lanes = evaluation_lanes or evaluation_episodes
        self.metrics_window = metrics_window
        self.report_seconds = report_seconds
        self.sample_timeout_seconds = sample_timeout_seconds
        self.save_replay = save_replay

    def make_environment(self, seed: int) -> py_environment.PyEnvironment:
        """The environment experience is collected in."""
        return self._make_environment(seed=seed)

    def make_evaluation_environment(self, seed: int, **more: Any) -> py_environment.PyEnvironment:
        """An environment for evaluation, with lanes and seeds of its own.

        Args:
          seed: The run's seed.
          **more: Further arguments, such as `make_kwargs`, for environments that take them.
        """
        return self._make_environment(
            seed=seed + EVALUATION_SEED_OFFSET, **{"num_envs": self.evaluation_lanes, **more}
        )

    def make_algorithm(
        self,
        env: py_environment.PyEnvironment,
        train_step: tf.Variable,
        environment_step: tf.Variable,
    ) -> algorithm_lib.Algorithm:
        """Builds the agent for an environment's specs."""
        world = algorithm_lib.World(
            time_step_spec=tensor_spec.from_spec(env.time_step_spec()),
            action_spec=tensor_spec.from_spec(env.action_spec()),
            train_step=train_step,
            environment_step=environment_step,
        )
        return algorithm_lib.as_algorithm(self.agent(world))

    def experience(
        self, algorithm: algorithm_lib.Algorithm, num_lanes: int
    ) -> sample_stream.Experience:
        """What flows from actor to learner."""
        return sample_stream.Experience(
            algorithm.agent.collect_data_spec, num_lanes, algorithm.n_step, algorithm.gamma
        )

    def collect_steps(self, num_lanes: int) -> int:
        """Environment steps of one run of the actor."""
        return self._collect_steps or max(64, num_lanes)

    def pace(self, environment_step: int, train_step: int, replay_is_empty: bool) -> Pace:
        """How updates follow environment steps from these counters on.

        Args:
          environment_step: Environment steps taken when this process began.
          train_step: Train steps taken by then.
          replay_is_empty: Learning then waits for as many steps as there are initial random ones,
            random or not: the first few transitions of a resumed run alone would spoil its policy.
        """
        wait = self.initial_random_steps if replay_is_empty else 0
        learn_from = max(environment_step + wait, self.initial_random_steps)
        return Pace(learn_from, train_step, self.updates_per_step)

    def _make_environment(self, **wanted: Any) -> py_environment.PyEnvironment:
        parameters = inspect.signature(self.environment).parameters
        accepted = {name: value for name, value in wanted.items() if name in parameters}
        env = self.environment(**accepted)
        lanes_lib.as_lanes(env)  # Raises, naming what is accepted, for anything else.
        return env


def greedy(policy: tf_policy.TFPolicy) -> tf_policy.TFPolicy:
    """The policy that takes the most likely action, which is what evaluations rate."""
    if isinstance(policy, greedy_policy.GreedyPolicy):
        return policy
    return greedy_policy.GreedyPolicy(policy)
