"""A further learner of a run: trains on its part of every batch, together with the first one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any, Callable

import tensorflow as tf
from absl import logging
from tensorflow.python.checkpoint import trackable_view

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings, run_settings
from actor_learner import plan as plan_lib
from actor_learner.agents import optimizers
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import learner_group, peer, replay_connection
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.jobs.workers import shared_queue, training_slices
from actor_learner.messaging import messages
from actor_learner.parameters import packing
from actor_learner.replay.reading import version_limit
from actor_learner.replay.server import state
from actor_learner.runs import model, trainer
from actor_learner.support import counters, errors, seeds

_JOIN_SECONDS = 0.5
_REST_SECONDS = 1.0  # Before it joins again, so that bad batches do not make it join all the time.
_MANY = 1_000
_TABLE_SECONDS = 5.0


def part_of(plan: plan_lib.Plan, num_learners: int) -> plan_lib.Plan:
    """The plan of one of several learners, each of which samples a part of every batch.

    Raises:
      errors.ConfigError: If the batch cannot be shared out.
    """
    if num_learners == 1:
        return plan
    if plan.group_steps is not None:
        stream = plan.stream.for_learners(num_learners, plan.experience)
        return dataclasses.replace(plan, stream=stream)
    if plan.batch_size % num_learners:
        raise errors.ConfigError(
            f"--learners={num_learners}: a batch of {plan.batch_size} (Experiment.batch_size) "
            "cannot be cut into as many equal parts"
        )
    return dataclasses.replace(plan, batch_size=plan.batch_size // num_learners)


def shared_queue_of(
    plan: plan_lib.Plan,
    num_learners: int,
    group: learner_group.ChiefGroup | learner_group.MemberGroup | None,
    train: Callable[[int], None],
    limit: version_limit.VersionLimit | None,
) -> shared_queue.SharedQueue | None:
    """What takes train steps on a queue that several learners share; None if there is none."""
    if group is None or plan.group_steps is None:
        return None
    stream: Any = plan.stream
    items = stream.cells_per_batch(plan.experience) // num_learners
    return shared_queue.SharedQueue(group, train, part_items=items, limit=limit)


def limit_of(
    experiment: experiment_lib.Experiment, built: model.Model
) -> version_limit.VersionLimit | None:
    """The limit to the age of experience that is learned from; None if there is none."""
    if experiment.staleness.when_lagging != run_settings.DROP:
        return None
    return version_limit.VersionLimit(built.train_step, experiment.staleness.max_version_lag)


def check_optimizers(built: model.Model) -> None:
    """Refuses agents whose optimizers would not add up gradients over several learners.

    Raises:
      errors.ConfigError: Names the optimizer.
    """
    for item in trackable_view.TrackableView(built.agent).descendants():
        kinds = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)
        if isinstance(item, kinds) and not optimizers.add_up(item):
            raise errors.ConfigError(
                f"{built.algorithm.name} learns by {type(item).__module__}.{type(item).__name__}, "
                "which knows nothing of other learners: several would drift apart. Use those of "
                "actor_learner.agents.optimizers, or one learner"
            )


class _Learning:
    """What `TrainingSlices` needs to know of this learner."""

    def __init__(self, made: trainer.Trainer, train_step: Any) -> None:
        self.trainer = made
        self._train_step = train_step

    @property
    def train_step_now(self) -> int:
        return int(counters.read(self._train_step))


class LearnerMemberJob(worker.Worker):
    """Takes the same train steps as the first learner, the chief, each on its part of the batch.

    It draws its own part from the replay, and updates the priorities of what it has drawn; from a
    queue, once the chief has begun the train step (`shared_queue.SharedQueue`). Its
    variables are those of the chief, which alone saves them, publishes them, and counts.

    Args:
      num_learners: How many learners share each batch.
    """

    def __init__(self, num_learners: int) -> None:
        self._num_learners = num_learners
        self._closing = contextlib.ExitStack()
        self._group: learner_group.MemberGroup | None = None
        self._done = False
        self._joined = 0

    def configure(self) -> None:
        job = self.job
        if job.index >= self._num_learners:
            raise errors.ConfigError(
                f"--index={job.index} is out of range: the run has {self._num_learners} learners "
                "(--num_learners)"
            )
        if job.directory is None:
            raise errors.ConfigError(
                f"{job} needs a directory of its own, but --run={job.run} is not a directory: pass "
                f"--run=some/place/{job.run}"
            )
        self._patience_seconds = jobs_settings.declared(job.source).patience_seconds
        self._experiment = experiment_lib.Experiment()
        self._replay = replay_connection.ReplayConnection(job)
        self._closing.callback(self._replay.close)
        # Its variables will be the chief's, but it must not draw the same random numbers.
        self._model = self._replay.make_model(
            self._experiment, seeds.of(job.seed, "learner", job.index)
        )
        check_optimizers(self._model)
        self._chief = peer.Peer(job, "learner", timeout_seconds=self._patience_seconds)
        self._closing.callback(self._chief.close)
        self._chief.follow(news_lib.TOPIC, self._hear)
        self._group = learner_group.MemberGroup(self._chief, self._variables)
        plan = part_of(self._model.plan, self._num_learners)
        limit = limit_of(self._experiment, self._model)
        self._trainer = trainer.Trainer(
            self._experiment,
            plan,
            self._model.algorithm,
            self._replay.address,
            str(job.directory),
            train_step=self._model.train_step,
            checkpoint_items={},
            why_no_sample=lambda: f"{job} has no sample of the server at {self._replay.address}",
            limit=limit,
            group=self._group,
            is_chief=False,
        )
        self._closing.callback(self._trainer.close)
        queue = shared_queue_of(plan, self._num_learners, self._group, self._trainer.run, limit)
        self._slices = training_slices.TrainingSlices(
            job,
            _Learning(self._trainer, self._model.train_step),
            self._replay,
            table=self._table_state,
            timeout_seconds=self._experiment.sample_timeout_seconds,
            meanwhile=lambda is_stuck: self._while_training(),
            train=None if queue is None else queue.run,
        )
        self._closing.callback(self._slices.close)

    def poll(self) -> worker.PollResult | bool:
        self._look_for_chief()
        if self._done:
            return True
        if not self._group.is_joined:
            if not self._group.join(_JOIN_SECONDS):
                return worker.PollResult(idle_seconds=_JOIN_SECONDS)
            self._joined += 1
            logging.info(
                "%s trains with the others from train step %d on.", self.job, self._train_step()
            )
        try:
            self._slices.run(_MANY)
        except job_lib.Stopping:
            raise
        except Exception as error:
            # What was raised within a graph comes as an error of TensorFlow.
            if self._group.is_joined:
                raise
            self._rest_after(error)
        return False

    def status(self) -> dict[str, Any]:
        joined = self._group.is_joined
        message = "trains with learner-0" if joined else "waits for learner-0"
        return {"steps": self._train_step(), "joined": self._joined, "message": message}

    def close(self) -> None:
        if self._group is not None and self._group.is_joined:
            self._group.abandon()
        self._closing.close()

    def _rest_after(self, error: Exception) -> None:
        if self._done:
            return
        if isinstance(error, errors.NotFiniteError):
            logging.warning("%s leaves out its part of a train step: %s", self.job, error)
            self.job.stopping.wait(_REST_SECONDS)
        else:
            logging.info("%s joins the others again.", self.job)

    def _while_training(self) -> None:
        self._look_for_chief()
        self._group.tell_drawing()

    def _look_for_chief(self) -> None:
        self._chief.check()
        silent = self._chief.silent_seconds
        if silent > self._patience_seconds:
            raise errors.JobTimeoutError(
                f"{self.job} has heard nothing from learner-0 for {silent:.0f} s "
                "(Jobs.patience_seconds): is it running?"
            )

    def _hear(self, message: messages.Message) -> None:
        try:
            self._done = self._done or news_lib.News.of(message.body).done
        except messages.BadMessageError as error:
            logging.log_first_n(logging.WARNING, "News are ignored: %s", 1, error)

    @functools.cache  # noqa: B019 - There is one for the life of the process.
    def _variables(self) -> packing.Packing:
        return state_packing(self._model)

    def _train_step(self) -> int:
        return int(counters.read(self._model.train_step))

    def _table_state(self) -> state.TableState:
        return self._replay.table_state(self._model.plan.stream.table_name, _TABLE_SECONDS)


def state_packing(built: model.Model) -> packing.Packing:
    """Where all variables are that learners must have alike."""
    return packing.Packing(
        learner_group.state_variables(built.agent, built.train_step, built.environment_step)
    )
