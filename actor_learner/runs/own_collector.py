"""The collector of a run in one process and, where it overlaps with learning, its own policy."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner import run_directory
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.replay.recording import experience_recorder
from actor_learner.runs import collector as collector_lib
from actor_learner.runs import overlap, step_watch


class OwnCollector:
    """Builds the collector, with all that observes it.

    By turns it acts with the policy that is trained. Overlapped it has an algorithm of its own,
    built once more, whose policy is a copy: nobody acts with variables that are being changed.

    Args:
      experiment: What to train.
      plan: What it comes to.
      algorithm: The one that is trained.
      env: Where to act; the caller's.
      client: Of the replay server.
      run: Where recordings and summaries go.
      train_step: Counts train steps.
      environment_step: Counts environment steps.
      seed: Of random actions.
      trained_version: Returns the version of the policy that is trained, between train calls.

    Attributes:
      collector: Acts, and writes.
      policy_copy: From the trained policy to the one that acts; None by turns.
      watch: Observes the steps.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        env: Any,
        client: reverb.Client,
        run: run_directory.RunDirectory,
        *,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        seed: int,
        trained_version: Callable[[], int],
    ) -> None:
        self._closing = contextlib.ExitStack()
        self.policy_copy: overlap.PolicyCopy | None = None
        version = train_step
        if experiment.overlap:
            version = tf.Variable(0, trainable=False, dtype=tf.int64, name="policy_version")
            acting = experiment.make_algorithm(env, version, environment_step)
            self.policy_copy = overlap.PolicyCopy(
                [*_own_variables(algorithm.agent.collect_policy, environment_step), train_step],
                [*_own_variables(acting.agent.collect_policy, environment_step), version],
            )
            algorithm = acting
        self.watch = step_watch.StepWatch(experiment.sample_timeout_seconds)
        self._recorder: experience_recorder.ExperienceRecorder | None = None
        observers: list[Any] = [self.watch]
        try:
            if experiment.record:
                self._recorder = recorder = experience_recorder.ExperienceRecorder(
                    run.experience,
                    algorithm.agent.collect_data_spec,
                    plan.num_lanes,
                    version=lambda: self.collector.actor.policy_version,
                )
                self._closing.callback(recorder.close)
                observers.append(recorder)
            self.collector = collector_lib.Collector(
                plan,
                algorithm,
                env,
                client,
                train_step=version,
                environment_step=environment_step,
                metrics_window=experiment.metrics_window,
                seed=seed,
                summary_dir=str(run.tensorboard),
                observers=tuple(observers),
                # A copy has a version of its own.
                policy_version=None if self.policy_copy else trained_version,
            )
        except BaseException:
            self._closing.close()
            raise
        self._closing.callback(self.collector.close)

    def save_recording(self) -> None:
        """Writes what the recording holds in memory, if there is one."""
        if self._recorder is not None:
            self._recorder.flush()

    def close(self) -> None:
        """Confirms what was written and ends the recording; safe to call twice."""
        self._closing.close()


def _own_variables(policy: Any, shared: tf.Variable) -> list[tf.Variable]:
    """A policy's variables, but for the one that both policies read."""
    return [variable for variable in policy.variables() if variable is not shared]
