"""The acting side of an experiment: an actor, and what observes and writes what it meets."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner.acting import actor, graph_unroll
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.replay.recording import experience_recorder
from actor_learner.runs import step_watch
from actor_learner.support import configurable, errors


class ActingSide:
    """Collects experience by turns, and writes it to the replay server.

    ```python
    while not done:
        acting.run()  # One turn; returns when the server has confirmed what was written.
    ```

    Args:
      experiment: Says whether to record, and how long a step may take.
      plan: What the experiment comes to.
      algorithm: Its collect policy acts; the variables it reads are the caller's to update, between
        turns.
      env: Where to act; the caller's.
      client: Of the replay server.
      train_step: Version of the policy that acts.
      environment_step: Raised by the environment steps of each turn.
      seed: Of random actions.
      recording_dir: Where experience is recorded, if the experiment says so; None where there is no
        run directory.
      summary_dir: Where summaries of the metrics go, against train steps, where a gin file asks
        for them by `Actor.summary_interval`; None writes none.
      policy_version: As of `Actor`: the version as a plain number, if the caller knows it.
      policy_epoch: As of `Actor`: the incarnation of the learner whose version it is.
      observers: Called with each step, before it is written.

    Attributes:
      actor: Steps the environment.
      statistics: Episodes that have ended.
      metrics: Those of the actor.
      watch: Tells a slow environment from one that hangs.

    Raises:
      errors.ConfigError: If there is nowhere to record to.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        env: Any,
        client: reverb.Client,
        *,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        seed: int,
        recording_dir: Any = None,
        summary_dir: str | None = None,
        policy_version: Callable[[], int] | None = None,
        policy_epoch: Callable[[], int] | None = None,
        observers: Sequence[Callable[[Any], None]] = (),
    ) -> None:
        self._closing = contextlib.ExitStack()
        self._turns = 0
        self._recorder: experience_recorder.ExperienceRecorder | None = None
        self.watch = step_watch.StepWatch(experiment.sample_timeout_seconds)
        try:
            watching: list[Any] = [self.watch]
            if experiment.record:
                watching.append(self._open_recorder(recording_dir, algorithm, plan.num_lanes))
            self._writer = plan.stream.observer(
                plan.experience, client, version=lambda: self.actor.policy_version
            )
            self._closing.callback(self._writer.close)
            transitions = getattr(self._writer, "observes_transitions", False)
            self.metrics = actor.collect_metrics(experiment.reporting.window)
            self.statistics = self.metrics[0].statistics
            # Else the lines of metrics alone have these values.
            summarizes = configurable.is_bound("Actor.summary_interval")
            group_steps = plan.group_steps
            if group_steps is None and graph_unroll.fits(env, algorithm.agent.collect_policy):
                group_steps = plan.steps_per_turn // plan.num_lanes
            self.actor = actor.Actor(
                env,
                algorithm.agent.collect_policy,
                train_step,
                steps_per_run=None if group_steps else plan.collect_steps,
                group_steps_per_run=group_steps,
                observers=[*observers, *([] if transitions else [self._writer]), *watching],
                transition_observers=[self._writer] if transitions else [],
                metrics=self.metrics,
                summary_dir=summary_dir if summarizes else None,
                environment_step=environment_step,
                initial_random_steps=plan.initial_random_steps,
                seed=seed,
                policy_version=policy_version,
                policy_epoch=policy_epoch,
            )
        except BaseException:
            self._closing.close()
            raise
        self._closing.callback(self.actor.close)

    @property
    def turns(self) -> int:
        """Turns that are complete, with all they wrote confirmed by the server."""
        return self._turns

    @property
    def steps_taken(self) -> int:
        """Environment steps of the turns so far, those of a turn that failed included."""
        return self.actor.steps_taken

    def run(self) -> None:
        """Takes one turn; returns when the server has confirmed all that was written."""
        self.actor.run()
        self._writer.flush()
        self._turns += 1

    def save_recording(self) -> None:
        """Writes what the recording holds in memory, if there is one."""
        if self._recorder is not None:
            self._recorder.flush()

    def close(self) -> None:
        """Confirms what was written, ends actor and recording; safe to call twice."""
        self._closing.close()

    def abandon(self) -> None:
        """Gives up what the server has not confirmed, at once; instead of `close`.

        Closing would write what is left, to whatever server answers by now.
        """
        self._writer.abandon()
        self.save_recording()

    def _open_recorder(
        self, directory: Any, algorithm: algorithm_lib.Algorithm, num_lanes: int
    ) -> experience_recorder.ExperienceRecorder:
        if directory is None:
            raise errors.ConfigError(
                "Experiment.record is set, but this actor has no run directory to record to: pass "
                "--run=some/place/NAME"
            )
        self._recorder = experience_recorder.ExperienceRecorder(
            directory,
            algorithm.agent.collect_data_spec,
            num_lanes,
            version=lambda: self.actor.policy_version,
        )
        self._closing.callback(self._recorder.close)
        return self._recorder
