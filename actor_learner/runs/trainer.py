"""Trains on samples of the replay server, and sends new priorities back."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.learning import (
    interval_trigger,
    learner,
    not_finite,
    priority_updater,
    train_timing,
)
from actor_learner.replay.reading import version_limit
from actor_learner.replay.server import shards
from actor_learner.support import configurable, counters, errors, replicas

MAX_ITERATIONS = 1_000
"""Maximum train steps per call of the learner, so that a request to stop is seen soon."""


_NO_SUMMARIES = {"summary_interval": 0}
_NOTHING_WRITTEN = {
    "summary_interval": 0,
    "checkpoint_interval": 0,
    "triggers": (),
    "when_not_finite": not_finite.STOP,
}


class Trainer:
    """Trains on samples of the replay server, and sends new priorities to prioritized tables.

    Args:
      experiment: The experiment to train.
      plan: The plan of the experiment, or of this learner's part of it.
      algorithm: Its agent is trained, in place.
      server_address: `host:port` of the replay server, or those of several (`Shards`).
      root_dir: Where checkpoints and summaries go.
      train_step: Counts train steps.
      checkpoint_items: Further trackables to be saved with the agent.
      why_no_sample: Says why no sample came in time.
      limit: Limit of the age of experience, for streams that use every step once; None for none.
      while_saving: As in `Learner`.
      group: As in `Learner`.
      is_chief: Whether it saves checkpoints, calls the user's triggers and writes summaries.
        Exactly one of several learners does.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        server_address: str,
        root_dir: str,
        *,
        train_step: tf.Variable,
        checkpoint_items: Mapping[str, Any],
        why_no_sample: Callable[[], str],
        limit: version_limit.VersionLimit | None = None,
        while_saving: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        group: replicas.Group | None = None,
        is_chief: bool = True,
    ) -> None:
        self._train_step = train_step
        self._closing = contextlib.ExitStack()
        # The version whose actions the latest batch holds, on average; -1 before the first.
        self._sampled_version = tf.Variable(-1.0, trainable=False, dtype=tf.float64)
        self._updaters: list[priority_updater.PriorityUpdater] = []
        for part in plan.stream.prioritized(plan.batch_size):
            addresses = shards.addresses_of(server_address)
            for number, address in enumerate(addresses):
                updater = priority_updater.PriorityUpdater(
                    address,
                    part.table_name,
                    algorithm.priorities,
                    rows=part.rows,
                    offset=part.offset,
                    shard=number if len(addresses) > 1 else None,
                    timeout_seconds=experiment.sample_timeout_seconds,
                )
                self._closing.callback(updater.close)
                self._updaters.append(updater)
        if plan.stream.weighted and not self._updaters:
            logging.warning(
                "%s samples by priority, but prioritized() names no rows whose priorities the "
                "learner is to update: every item keeps the one it was written with.",
                type(plan.stream).__name__,
            )
        self.loss: np.floating | None = None
        self._extra: Any = ()
        self._scalar_parts: frozenset[str] = frozenset()
        self._gauges = algorithm.gauges
        self._agent = algorithm.agent
        self._counts = False  # Whether the agent was seen to raise the train step.
        self.learner = learner.Learner(
            root_dir,
            train_step,
            algorithm.agent,
            lambda: plan.stream.dataset(
                plan.experience,
                server_address,
                plan.batch_size,
                experiment.sample_timeout_seconds,
                **({} if limit is None else {"limit": limit}),
            ),
            after_train_strategy_step_fn=self._after_train,
            use_kwargs_in_agent_train=plan.stream.weighted,
            checkpoint_items=checkpoint_items,
            sample_timeout_message=why_no_sample,
            while_saving=while_saving,
            losses_as_numbers=True,
            group=group,
            **({} if is_chief else _NOTHING_WRITTEN),
            # The lines of metrics have the losses. The summaries of TF-Agents' agents themselves,
            # under their own names and against train steps, are added on request.
            **(
                {}
                if not is_chief or configurable.is_bound("Learner.summary_interval")
                else _NO_SUMMARIES
            ),
        )
        self._closing.callback(self.learner.close)
        self.timing = train_timing.TrainTiming(self.learner, measures=not experiment.deterministic)
        if is_chief and experiment.checkpoints.seconds:
            self.learner.add_trigger(
                interval_trigger.IntervalTrigger(
                    None, self.learner.save_checkpoint, seconds=experiment.checkpoints.seconds
                )
            )

    @property
    def version_lag(self) -> float | None:
        """Train steps since the policy that acted in the latest batch; None if unknown.

        The mean over the batch's transitions, or unrolls.
        """
        version = float(counters.read(self._sampled_version))
        return (
            None if version < 0 else max(0.0, float(counters.read(self._train_step)) - 1 - version)
        )

    def run(self, iterations: int) -> None:
        """Trains, and blocks until samples come.

        Raises:
          errors.ReplayTimeoutError: If none comes in time.
          errors.TriggerError: If a trigger raised.
          errors.NotFiniteError: If a loss or gradient was not finite, and that is not skipped.
          errors.ConfigError: If the agent does not raise the train step: the run would never end.
        """
        before, skipped = self.learner.last_step, self.learner.skipped_steps
        loss_info = self.timing.run(iterations)
        self.loss, self._extra = loss_info.loss, loss_info.extra
        if not self._counts and self.learner.skipped_steps - skipped < iterations:
            self._counts = self.learner.last_step > before
            if not self._counts:
                raise self._not_counted(iterations)
        for updater in self._updaters:
            updater.raise_if_failed()

    def gauges(self) -> dict[str, float]:
        """Returns diagnostics of the latest train step by name, for experts of the algorithm.

        They are the parts of the loss, the mean target of values, and the agent's gauges; there are
        none before the first train step.
        """
        if self.loss is None:
            return {}
        found = {
            name: float(value)
            for name, value in _fields(self._extra).items()
            if name in self._scalar_parts
        }
        target = self.learner.latest_batch().get("target")
        if target is not None and target.size:
            found["value_target"] = float(target.mean())
        own = {name: float(read()) for name, read in self._gauges.items()}
        return {**self.learner.gauges(), **found, **own}

    def save_after_failure(self) -> None:
        """Saves a checkpoint; if the agent is not finite, logs that instead.

        Raises:
          Any other error of saving.
        """
        try:
            self.learner.save_checkpoint()
        except errors.NotFiniteError as error:
            logging.error("%s", error)

    def close(self) -> None:
        """Ends the learner and its triggers; safe to call twice."""
        self._closing.close()

    def _not_counted(self, iterations: int) -> errors.ConfigError:
        return errors.ConfigError(
            f"{type(self._agent).__name__} has trained on {iterations} batches and the train step "
            f"is still {int(counters.read(self._train_step))}: the agent counts its train steps "
            "elsewhere, or not at all, and the run would never end. Give it the run's variable: "
            "train_step_counter=world.train_step"
        )

    @tf.autograph.experimental.do_not_convert
    def _after_train(self, experience: Any, loss_info: Any) -> None:
        # Noted while the graph is made: others are summed over the batch by the learner.
        parts = _fields(loss_info.extra).items()
        self._scalar_parts = frozenset(name for name, part in parts if _is_scalar(part))
        _, info = experience
        version = getattr(info, "version", None)
        if version is not None:
            self._sampled_version.assign(_mean_version(version))
        for updater in self._updaters:
            updater.after_train(experience, loss_info)


def _fields(extra: Any) -> Mapping[str, Any]:
    """Returns the parts of a loss by name, if the agent names them."""
    if isinstance(extra, Mapping):
        return extra
    return extra._asdict() if hasattr(extra, "_asdict") else {}


def _is_scalar(part: Any) -> bool:
    return tf.is_tensor(part) and part.shape.rank == 0 and part.dtype.is_floating


def _mean_version(version: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the known versions; -1 if none is, as in recorded experience."""
    known = tf.cast(version >= 0, tf.float64)
    count = tf.reduce_sum(known)
    total = tf.reduce_sum(tf.cast(version, tf.float64) * known)
    return tf.where(count > 0, total / tf.maximum(count, 1.0), -1.0)
