"""Chooses how a run in one process collects and trains, and builds the acting side for it."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import parts
from actor_learner import plan as plan_lib
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.runs import acting_side, further_policy, learning_side, pacing
from actor_learner.runs.runners import device_actors, device_threads, threads, turns

MakeSide = Callable[..., acting_side.ActingSide]
"""Makes an acting side, given an algorithm, its environment, its version and a seed."""


class Runner:
    """Trains on recorded experience alone, and is what the other runners have in common.

    Args:
      experiment: Says for how long to train.

    Attributes:
      acting: The acting side, or several as one; None if nothing is collected.
    """

    def __init__(self, experiment: experiment_lib.Experiment) -> None:
        self._experiment = experiment
        self.acting: acting_side.ActingSide | device_actors.DeviceActors | None = None

    def make_pacing(
        self, plan: plan_lib.Plan, learning: learning_side.LearningSide, table: pacing.Table
    ) -> pacing.Pacing:
        """Makes the pacing of the learning side, which counts from where it stands now.

        Args:
          plan: What the experiment comes to.
          learning: The learning side, restored.
          table: Returns the state of the table with the experience.
        """
        if plan.group_steps is None:
            environment_step, train_step = learning.counters()
            return pacing.ReplayPacing(
                plan, table, environment_step=environment_step, train_step=train_step
            )
        first, learner, acting = learning.train_step, learning.trainer.learner, self.acting
        return pacing.QueuePacing(
            plan, lambda step: acting.turns - (step - first) - learner.skipped_steps
        )

    def learner_restored(self) -> None:
        """Takes note that the learner's variables are now those to act with."""

    def run(self, learning: learning_side.LearningSide, ended: Callable[[], bool]) -> None:
        """Trains until the experiment's steps are taken.

        Args:
          learning: The learning side.
          ended: Returns whether training is to end early.
        """
        turns.run_offline(
            learning,
            train_steps=self._experiment.train_steps,
            evaluation_interval=self._experiment.evaluation.interval,
            ended=ended,
        )


class TurnsRunner(Runner):
    """Collects and trains in turns, with the trained policy itself."""

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        acting: acting_side.ActingSide,
        further: further_policy.FurtherPolicies,
    ) -> None:
        super().__init__(experiment)
        self.acting = acting
        self._further = further

    def run(self, learning: learning_side.LearningSide, ended: Callable[[], bool]) -> None:
        turns.run(
            self.acting,
            learning,
            environment_steps=self._experiment.environment_steps,
            ended=ended,
            further=self._further,
        )


class ThreadsRunner(Runner):
    """Collects in a thread while the learner trains, with a copy of the trained policy.

    While the learner trains, it changes its variables one by one: nobody may act with them.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        acting: acting_side.ActingSide,
        policy_copy: threads.PolicyCopy,
    ) -> None:
        super().__init__(experiment)
        self.acting = acting
        self._policy_copy = policy_copy

    def learner_restored(self) -> None:
        self._policy_copy.publish()

    def run(self, learning: learning_side.LearningSide, ended: Callable[[], bool]) -> None:
        threads.run(
            self.acting,
            learning,
            self._policy_copy,
            environment_steps=self._experiment.environment_steps,
            ended=ended,
        )


class DevicesRunner(Runner):
    """Collects in a thread per device while the learner trains on another device."""

    def __init__(
        self, experiment: experiment_lib.Experiment, acting: device_actors.DeviceActors
    ) -> None:
        super().__init__(experiment)
        self.acting = acting

    def run(self, learning: learning_side.LearningSide, ended: Callable[[], bool]) -> None:
        devices = self._experiment.devices
        with tf.device(devices.learner):
            device_threads.run(
                self.acting,
                learning,
                lag=devices.lag,
                environment_steps=self._experiment.environment_steps,
                ended=ended,
            )


def choose(
    experiment: experiment_lib.Experiment,
    trained: tuple[algorithm_lib.Algorithm, tf.Variable],
    env: Any,
    make_side: MakeSide,
    *,
    environment_step: tf.Variable,
    further: further_policy.FurtherPolicies,
    version: Callable[[], int],
    seed: int,
    closing: contextlib.ExitStack,
) -> Runner:
    """Builds the runner that an experiment asks for, with its acting side.

    Args:
      experiment: Says which: `overlap`, `devices`, or none of them.
      trained: The algorithm that is trained, and its train step.
      env: The environment; None if all experience is recorded.
      make_side: Makes an acting side.
      environment_step: Counts environment steps.
      further: Other policies of the same world.
      version: Returns the train step that `trained` has reached, at no cost.
      seed: Of the first actor.
      closing: Closes what is built.
    """
    if experiment.is_offline:
        return Runner(experiment)
    if experiment.devices.actors:
        actors = device_actors.build(
            experiment,
            trained,
            env,
            make_side,
            environment_step=environment_step,
            seed=seed,
            closing=closing,
        )
        return DevicesRunner(experiment, actors)
    algorithm, train_step = trained
    if not experiment.overlap:
        acting = make_side(algorithm, env, train_step, seed, policy_version=version)
        _hand_over(acting, closing)
        return TurnsRunner(experiment, acting, further)
    copied = tf.Variable(0, trainable=False, dtype=tf.int64, name="policy_version")
    copy = experiment.make_algorithm(env, copied, environment_step)
    policy_copy = threads.PolicyCopy.of_policies(
        (algorithm.collect_policy, train_step),
        (copy.collect_policy, copied),
        shared=environment_step,
    )
    acting = make_side(copy, env, copied, seed)
    _hand_over(acting, closing)
    return ThreadsRunner(experiment, acting, policy_copy)


def _hand_over(acting: acting_side.ActingSide, closing: contextlib.ExitStack) -> None:
    closing.callback(acting.close)
    parts.publish(collect_metrics=acting.metrics)
