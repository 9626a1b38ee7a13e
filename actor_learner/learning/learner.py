"""The learner: pulls batches from a dataset, trains an agent, calls triggers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging
from tf_agents.agents import tf_agent
from tf_agents.typing import types

from actor_learner.learning import (
    agent_context,
    batches,
    checkpoints,
    not_finite,
    replica_step,
    sample_watch,
    saving,
    taken_batches,
    train_calls,
    trigger_runner,
)
from actor_learner.reporting import summaries
from actor_learner.support import configurable, counters, errors, replicas

TRAIN_DIR = "train"
POLICY_SAVED_MODEL_DIR = "policies"
COLLECT_POLICY_SAVED_MODEL_DIR = "collect_policy"
GREEDY_POLICY_SAVED_MODEL_DIR = "greedy_policy"
RAW_POLICY_SAVED_MODEL_DIR = "policy"
POLICY_CHECKPOINT_DIR = "checkpoints"
REPLAY_BUFFER_CHECKPOINT_DIR = "replay_buffer_checkpoints"

ExperienceAndSampleInfo = tuple[types.NestedTensor, tuple[Any, ...]]
Trigger = trigger_runner.Trigger
StopTraining = trigger_runner.StopTraining


@configurable.register
class Learner(tf.Module):
    """Trains an agent on a dataset, many steps per TensorFlow call.

        with Learner(root_dir, train_step, agent, dataset_fn, triggers=[...]) as learner:
            while learner.stop_reason is None and learner.train_step_numpy < 100_000:
                collect_actor.run()
                loss = learner.run(iterations=50).loss

    `run(iterations=k)` pulls k batches and trains on them inside one graph, whatever k is, and
    traces nothing again. Two graphs are kept: one without any summary operation, and one that
    records summaries, used only around the steps where `train_step % summary_interval == 0`.

    Construction creates all variables (by tracing, which takes no data), restores the newest
    readable checkpoint of `<root_dir>/train/checkpoints`, and tells the triggers the step to count
    from. After every `run` each trigger is called in order with the train step. A trigger may have

    - `set_start(train_step)`: called when it joins the learner, after the restore;
    - `on_start(train_step)`: called once, before the first training it takes part in;
    - `on_stop(train_step)`: called once, by `close`.

    A trigger that raises ends training: a checkpoint is saved, then `errors.TriggerError` names it.
    One that raises `StopTraining` sets `stop_reason`; the others still run and `run` returns.
    """

    def __init__(
        self,
        root_dir: str,
        train_step: tf.Variable,
        agent: tf_agent.TFAgent,
        experience_dataset_fn: Callable[[], tf.data.Dataset] | None = None,
        after_train_strategy_step_fn: Callable[..., None] | None = None,
        triggers: Sequence[Trigger] | None = None,
        checkpoint_interval: int = 100000,
        summary_interval: int = 1000,
        max_checkpoints_to_keep: int | None = 3,
        use_kwargs_in_agent_train: bool = False,
        strategy: tf.distribute.Strategy | None = None,
        run_optimizer_variable_init: bool = True,
        use_reverb_v2: bool = False,
        direct_sampling: bool = False,
        experience_dataset_options: tf.distribute.InputOptions | None = None,
        strategy_run_options: tf.distribute.RunOptions | None = None,
        summary_root_dir: str | None = None,
        *,
        checkpoint_items: Mapping[str, Any] | None = None,
        sample_timeout_message: Callable[[], str] | None = None,
        sample_timeout_seconds: float | None = 600.0,
        when_not_finite: str = not_finite.STOP,
        max_skipped_in_a_row: int = 10,
        while_saving: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        losses_as_numbers: bool = False,
        group: replicas.Group | None = None,
    ):
        """Builds everything that training needs, and restores what an earlier run left.

        Args:
          root_dir: Checkpoints and summaries go to `<root_dir>/train`.
          train_step: Scalar integer variable that the agent increments.
          agent: Trained in place; no attribute of it is replaced.
          experience_dataset_fn: Makes the dataset of `(experience, sample_info)` batches, which is
            read without tf.data's autotuning unless its options turn that on. Not needed if every
            `run` is given an iterator.
          after_train_strategy_step_fn: `fn((experience, sample_info), loss_info)`, traced into the
            graph after each train step, for example to update priorities.
          triggers: Called as `trigger(train_step)` after each `run`; the list is copied.
          checkpoint_interval: Train steps between checkpoints, checked after each `run`; 0 or less
            saves none of its own accord.
          summary_interval: Train steps between summaries; 0 writes none.
          max_checkpoints_to_keep: Older checkpoints are deleted.
          use_kwargs_in_agent_train: Experience is a dictionary of arguments of `agent.train`.
          strategy: Distribution strategy; the current one by default.
          run_optimizer_variable_init: Trace the train step during construction, so that optimizer
            variables exist when a checkpoint is restored. Without it they are restored when the
            first `run` creates them.
          use_reverb_v2: Samples have the fields `data` and `info` instead of being a pair.
          direct_sampling: Samples are experience alone.
          experience_dataset_options: Passed to `strategy.distribute_datasets_from_function`.
          strategy_run_options: Passed to each `strategy.run`.
          summary_root_dir: Summaries go to `<summary_root_dir>/train` instead.
          checkpoint_items: Further trackables saved in the same checkpoints, by name. A checkpoint
            that holds nothing of one leaves it as it is. Triggers that have a state, being a
            `tf.train.experimental.PythonState` or a `tf.Module`, are saved without being asked for.
          sample_timeout_message: Called when the dataset ends, to say why no sample came.
          sample_timeout_seconds: How long one train step may wait for a Reverb table that cannot be
            sampled, or for a server that does not answer; None: for ever. A dataset with a
            `rate_limiter_timeout_ms` of its own decides about the former itself. Waits of more
            than ten seconds are logged, with what the tables say.
          when_not_finite: What to do when a loss or a gradient is NaN or infinite; the step is not
            applied in any case. `stop`: save a checkpoint, then raise `errors.NotFiniteError`.
            `skip`: leave the step out, count it in `skipped_steps`, and train on.
          max_skipped_in_a_row: With `skip`, this many steps in a row may be left out; one more
            ends training as `stop` does.
          while_saving: Makes a context that each checkpoint is saved in; if entering it raises,
            nothing is saved.
          losses_as_numbers: `run` returns the losses as NumPy scalars instead of tensors, each of
            which TensorFlow 2.15 on Python 3.11 loses some bytes for.
          group: Learners in other processes that take the same train steps, each on its part of
            the batch; None for none.

        Raises:
          errors.CheckpointError: If there are checkpoints but none can be read, or the newest one
            belongs to another agent.
          ValueError: If a name in `checkpoint_items` is taken or not an identifier, or another
            argument is out of its range.
        """
        super().__init__(name="learner")
        self._train_dir = os.path.join(root_dir, TRAIN_DIR)
        self._summary_dir = os.path.join(summary_root_dir or root_dir, TRAIN_DIR)
        self.train_step = train_step
        self._agent = agent
        self.strategy = strategy or tf.distribute.get_strategy()
        self.after_train_strategy_step_fn = after_train_strategy_step_fn
        self.use_kwargs_in_agent_train = use_kwargs_in_agent_train
        self.summary_interval = int(summary_interval or 0)
        self._watch = sample_watch.SampleWatch(train_step, sample_timeout_seconds)
        self._closed = False
        self.train_seconds = 0.0
        """Seconds in train steps so far, waits for their samples included; triggers are not."""
        self._when_not_finite = not_finite.NotFinitePolicy(when_not_finite, max_skipped_in_a_row)
        items = checkpoints.checked_items(
            {**trigger_runner.states(triggers or ()), **(checkpoint_items or {})}
        )

        self._summaries = summaries.Summaries(
            self._summary_dir if self.summary_interval else None, "the learner"
        )
        self.train_summary_writer = self._summaries.writer
        self._replicas = replica_step.ReplicaStep(
            agent,
            self.strategy,
            after_train=after_train_strategy_step_fn,
            use_kwargs=use_kwargs_in_agent_train,
            run_options=strategy_run_options,
            counts=self._when_not_finite.skips,
            group=group,
        )
        self._calls = train_calls.TrainCalls(
            agent=agent,
            train_step=train_step,
            replicas=self._replicas,
            step=self._step_of_loop,
            as_numbers=losses_as_numbers,
            summary_interval=self.summary_interval,
            writer=self._summaries,
            policy=self._when_not_finite,
            save=self._save_after_failure,
            context=self._context,
        )
        self._batches = batches.Batches(
            experience_dataset_fn,
            self.strategy,
            train_step,
            options=experience_dataset_options,
            use_reverb_v2=use_reverb_v2,
            direct_sampling=direct_sampling,
            timeout_message=sample_timeout_message,
        )

        with self._context():
            agent.initialize()
            if run_optimizer_variable_init:
                if experience_dataset_fn is None:
                    self._replicas.trace()
                else:
                    self._calls.trace(self._experience_iterator)
            else:
                logging.warning(
                    "Optimizer variables are restored only once the first run made them."
                )
            self._checkpointer = checkpoints.Checkpointer(
                os.path.join(self._train_dir, POLICY_CHECKPOINT_DIR),
                max_to_keep=max_checkpoints_to_keep,
                agent=agent,
                train_step=train_step,
                **items,
            )
            self._checkpointer.initialize_or_restore()
        self._calls.note_step()

        self._saving = saving.Saving(
            self._checkpointer,
            train_step,
            checkpoint_interval,
            while_saving=while_saving,
            directory=self._train_dir,
            save=self.save_checkpoint,
        )
        self._runner = trigger_runner.TriggerRunner((), self._save_after_failure, self._context)
        for trigger in triggers or ():
            self.add_trigger(trigger)
        if self._saving.trigger is not None:
            self.triggers.append(self._saving.trigger)

    @property
    def triggers(self) -> list[Trigger]:
        """The triggers in the order of their calls; the learner's own checkpoint is the last."""
        return self._runner.triggers

    @property
    def stop_reason(self) -> str | None:
        """Why a trigger asked to stop; None as long as none has."""
        return self._runner.stop_reason

    @property
    def train_step_numpy(self) -> np.ndarray:
        """The train step now, as a NumPy scalar."""
        return counters.read(self.train_step)

    @property
    def last_step(self) -> int:
        """The train step after the latest training, or the restored one; costs nothing to read.

        It does not move while `run` trains, and knows nothing of assignments from elsewhere.
        """
        return self._calls.last_step

    @property
    def restored_from(self) -> str | None:
        """Path prefix of the checkpoint this learner continues from; None after a fresh start."""
        return self._checkpointer.restored_from

    @property
    def skips_steps(self) -> bool:
        """Whether train steps that are not finite are left out, instead of ending training."""
        return self._when_not_finite.skips

    @property
    def skipped_steps(self) -> int:
        """Train steps that this learner has left out, since they were not finite."""
        return self._when_not_finite.skipped

    @property
    def steps_until_checkpoint(self) -> int | None:
        """Train steps until the next checkpoint is due; None if none is saved on the way."""
        trigger = self._saving.trigger
        return None if trigger is None else trigger.steps_left(self.last_step)

    def add_trigger(self, trigger: Trigger) -> None:
        """Adds a trigger behind the others, but before the learner's own checkpoint."""
        if hasattr(trigger, "set_start"):
            trigger.set_start(self.train_step.numpy())
        at_end = not self.triggers or self.triggers[-1] is not self._saving.trigger
        self.triggers.insert(len(self.triggers) - (not at_end), trigger)

    def save_checkpoint(self) -> str | None:
        """Saves `ckpt-<train step>` now, whatever the interval; returns its path prefix.

        On a full disk None is returned, and the next calls of `run` try again: see `unsaved`.
        """
        return self._saving.save_now()

    def run(
        self, iterations: int = 1, iterator: Any | None = None, parallel_iterations: int = 10
    ) -> tf_agent.LossInfo:
        """Trains `iterations` times, then calls the triggers.

        Blocks while the dataset has no batch to give; says so in the log after ten seconds.

        Args:
          iterations: Number of batches to train on, at least 1.
          iterator: Where the batches come from, instead of the learner's own dataset.
          parallel_iterations: Passed to the graph's loop; another value traces another loop.

        Returns:
          The losses of the last iteration, summed over replicas and over their own dimensions. If
          that one was skipped, those of the last one that was not; NaN if there was none yet.

        Raises:
          errors.NotFiniteError: If a loss or gradient was not finite, and `when_not_finite` or
            `max_skipped_in_a_row` say to stop; a checkpoint was saved, unless the agent itself is
            not finite.
          errors.ReplayTimeoutError: If the dataset ended, or gave nothing for
            `sample_timeout_seconds`. Its iterator is made again, so that a later `run` waits again;
            one that was passed is of no use any more.
          errors.TriggerError: If a trigger raised.
        """
        if iterations < 1:
            # An AssertionError because callers written for TF-Agents expect that.
            raise AssertionError(f"Iterations must be greater or equal to 1, was {iterations}")
        if self._closed:
            raise errors.ActorLearnerError("this learner is closed: make another one to train on")
        own_iterator = iterator is None
        if own_iterator:
            if self._experience_iterator is None:
                raise ValueError(
                    "the learner was made without experience_dataset_fn: pass an iterator to run()"
                )
            iterator = self._experience_iterator
        self._runner.start(self._calls.step_now)
        began = time.perf_counter()
        try:
            loss_info, step = self._train(
                iterations,
                iterator,
                parallel_iterations,
                bind=own_iterator,
                watching=lambda step: self._watch.over(
                    step, lambda: self._batches.sources(iterator)
                ),
            )
        except (
            tf.errors.OutOfRangeError,
            StopIteration,
            errors.ReplayTimeoutError,
            errors.NotFiniteError,
        ) as error:
            if own_iterator:
                with self._context():
                    self._batches.renew()
            if isinstance(error, errors.ActorLearnerError):
                raise
            raise self.replay_timeout(error) from error
        finally:
            self.train_seconds += time.perf_counter() - began
        self._runner.call(step)
        return loss_info

    def take_batches(self, count: int) -> Any:
        """Takes batches from the learner's own dataset; returns an iterator over them, for `run`.

        Blocks as `run` does. None if the dataset is not one that this can be done with: there is
        none, or it is distributed.

        Raises:
          errors.ReplayTimeoutError: As `run`.
        """
        iterator = self._batches.iterator
        if not isinstance(iterator, tf.data.Iterator):
            return None
        try:
            with self._watch.over(self._calls.step_now(), lambda: self._batches.sources(iterator)):
                taken = [next(iterator) for _ in range(count)]
        except (tf.errors.OutOfRangeError, StopIteration, errors.ReplayTimeoutError) as error:
            with self._context():
                self._batches.renew()
            if isinstance(error, errors.ActorLearnerError):
                raise
            raise self.replay_timeout(error) from error
        return taken_batches.iterator_over(taken, iterator.element_spec)

    def latest_batch(self) -> dict[str, np.ndarray]:
        """The batch of the latest train step, and what the agent has noted of it, by name.

        Empty if it is not known. Copies the batch.
        """
        return self._replicas.latest_batch()

    def gauges(self) -> dict[str, float]:
        """What the agent has gauged of the latest train step; see `batch_notes.gauge`."""
        return self._replicas.gauges()

    def loss(
        self,
        experience_and_sample_info: ExperienceAndSampleInfo | None = None,
        reduce_op: tf.distribute.ReduceOp = tf.distribute.ReduceOp.SUM,
    ) -> tf_agent.LossInfo:
        """Computes the loss of one batch without training on it.

        Args:
          experience_and_sample_info: The batch; the next one of the dataset by default.
          reduce_op: How losses are combined over replicas.
        """
        with self._context():
            if experience_and_sample_info is None:
                with self.watching(lambda: self._batches.sources(self._experience_iterator)):
                    experience_and_sample_info = self._batches.split(
                        next(self._experience_iterator)
                    )
            return self._loss(experience_and_sample_info, reduce_op)

    def single_train_step(self, iterator: Any) -> tf_agent.LossInfo:
        """Trains on the next batch of `iterator`; traced into the graphs that `run` calls."""
        experience, sample_info = self._batches.split(next(iterator))
        loss_info = self._replicas.train(experience)
        self._replicas.after_train(experience, sample_info, loss_info)
        return loss_info

    def watching(self, sources: sample_watch.Sources) -> contextlib.AbstractContextManager[None]:
        """A context for calls that wait for experience; see `SampleWatch.over`.

        Args:
          sources: Returns the tables that are waited for, as far as they are known.
        """
        return self._watch.over(self._calls.step_now(), sources)

    def replay_timeout(self, error: Exception) -> errors.ReplayTimeoutError:
        """The error to raise when the dataset ended with `error`."""
        return self._batches.timeout(error)

    def close(self) -> None:
        """Calls the triggers' `on_stop`, flushes and closes the summaries; later calls do nothing.

        Raises:
          errors.TriggerError: If an `on_stop` raised; the others were called all the same.
        """
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        try:
            self._runner.stop(self.train_step.numpy())
        finally:
            self._replicas.close()
            self._summaries.close()

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _context(self) -> contextlib.AbstractContextManager[None]:
        return agent_context.agent_context(
            self.train_summary_writer, self.train_step, self.summary_interval, self.strategy
        )

    # Training.

    @property
    def _experience_iterator(self) -> Any:
        """Known by this name to subclasses written for TF-Agents."""
        return self._batches.iterator

    def _train(self, *args: Any, **kwargs: Any) -> tuple[Any, int]:
        """As `TrainCalls.run`; subclasses may do more."""
        return self._calls.run(*args, **kwargs)

    def _step_of_loop(self, iterator: Any) -> Any:
        return self.single_train_step(iterator)  # Looked up late: subclasses may override it.

    @tf.function
    def _loss(self, experience_and_sample_info: Any, reduce_op: tf.distribute.ReduceOp) -> Any:
        experience, sample_info = experience_and_sample_info
        loss_info = self._replicas.loss(experience)
        self._replicas.after_train(experience, sample_info, loss_info)
        return self._replicas.reduce(loss_info, reduce_op)

    def _save_after_failure(self) -> str:
        return self._saving.save_after_failure()
