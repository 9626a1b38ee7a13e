"""The acting side of an experiment: an actor, and the observers that write what it meets."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner import plan as plan_lib
from actor_learner.acting import actor
from actor_learner.agents import algorithm as algorithm_lib


class Collector:
    """Collects experience by turns and writes it to the replay server.

    Args:
      plan: What the experiment comes to.
      algorithm: Its collect policy acts; the variables it reads are the caller's to update, between
        turns.
      env: Where to act; the caller's.
      client: Of the replay server.
      train_step: Version of the policy that acts.
      environment_step: Raised by the environment steps of each turn.
      metrics_window: Episodes that the statistics are over.
      seed: Of random actions.
      summary_dir: Where summaries of the metrics go; None writes none.
      observers: Further observers of trajectories, called before the metrics.
      policy_version: As of `Actor`: the version as a plain number, if the caller knows it.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        env: Any,
        client: reverb.Client,
        *,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        metrics_window: int,
        seed: int,
        summary_dir: str | None = None,
        observers: tuple[Any, ...] = (),
        policy_version: Callable[[], int] | None = None,
    ) -> None:
        self._closing = contextlib.ExitStack()
        self.writer = plan.stream.observer(
            plan.experience, client, version=lambda: self.actor.policy_version
        )
        self._closing.callback(self.writer.close)
        self._turns = 0
        self.metrics = actor.collect_metrics(metrics_window)
        self.statistics = self.metrics[0].statistics
        transitions = getattr(self.writer, "observes_transitions", False)
        try:
            self.actor = actor.Actor(
                env,
                algorithm.agent.collect_policy,
                train_step,
                steps_per_run=None if plan.group_steps else plan.collect_steps,
                group_steps_per_run=plan.group_steps,
                observers=[*([] if transitions else [self.writer]), *observers],
                transition_observers=[self.writer] if transitions else [],
                metrics=self.metrics,
                summary_dir=summary_dir,
                environment_step=environment_step,
                initial_random_steps=plan.initial_random_steps,
                seed=seed,
                policy_version=policy_version,
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
        self.writer.flush()
        self._turns += 1

    def close(self) -> None:
        """Confirms what was written and ends the actor; safe to call twice."""
        self._closing.close()

    def abandon(self) -> None:
        """Gives up what the server has not confirmed, at once; instead of `close`.

        Closing would write what is left, to whatever server answers by now.
        """
        # The destructor of a structured writer waits for its server for ever, with the
        # interpreter's lock held: it must live as long as the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.writer))
