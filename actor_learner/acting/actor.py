"""The actor: runs a policy in an environment and hands every step to observers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tree
from absl import logging
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import action_mask
from actor_learner.acting import graph_unroll
from actor_learner.acting import metrics as metrics_lib
from actor_learner.environments import lanes as lanes_lib
from actor_learner.inference import python as python_inference
from actor_learner.inference import streams
from actor_learner.reporting import row_limit
from actor_learner.reporting import summaries as summaries_lib
from actor_learner.support import configurable, counters

Observer = Callable[[trajectory_lib.Trajectory], Any]

LAST = int(ts.StepType.LAST)


@configurable.register
class Actor:
    """Collects experience, or evaluates, in `run()`s of a given number of steps or episodes.

    ```python
    actor = Actor(env, agent.collect_policy, train_step, steps_per_run=64, observers=[observer])
    while training:
        actor.run()                # steps all lanes together until 64 steps are taken
        learner.run(iterations=32)
    ```

    Each batched step is one environment call, one compiled policy call and one call per observer.
    Observers see what TF-Agents' would: every step, boundary steps included, in the layout of the
    environment (`[lanes, ...]` leaves if it is batched, no lane dimension if it is not). The
    arrays belong to the observers; the actor never writes to them again. Episodes run on across
    `run()` calls.

    Args:
      env: A TF-Agents `PyEnvironment`, batched or not; `GymnasiumEnvironment` is one.
      policy: A TF policy, a Python policy, or an inference stream.
      train_step: Scalar int64 `tf.Variable`; the step of summaries, and the version of the policy.
      steps_per_run: Stop a run after this many environment steps, summed over lanes.
      episodes_per_run: Stop a run after this many episodes, summed over lanes.
      observers: Called in order with the `Trajectory` of each step.
      transition_observers: Called with `(time_step, policy_step, next_time_step)`.
      info_observers: Called with the environment's info of each step.
      metrics: Observers with `name` and scalar `result()`, called after `observers`.
      reference_metrics: Metrics against which summaries of the others are plotted as well.
      image_metrics: Like `metrics`, with images as results.
      summary_dir: Where summaries go; None writes none.
      summary_interval: Train steps between summaries; more in very long runs, see `row_limit`.
      end_episode_on_boundary: Count an episode at its boundary step (LAST to FIRST), so that
        observers have seen it; else at its last step.
      name: Prefix of summaries.
      environment_step: Optional scalar int64 `tf.Variable`, raised after each run by the steps
        taken. Exploration schedules read it; checkpoints keep it.
      initial_random_steps: Act at random until `environment_step` has reached this number. A
        resumed run has reached it already, so that it is not repeated.
      seed: Seed of the random initial actions, and of what the policy draws at random if inference
        is lite; None follows `tf.random.set_seed`.
      group_steps_per_run: Stop a run after this many batched steps, each of which steps every lane
        once, boundary steps included: what an unroll is made of. In a `TensorEnvironment` and with
        a TF policy these are one graph call.
      policy_version: Returns the version of the policy, for callers that know it as a plain number.
        Weights must not change while it stays the same. By default the learner that raises
        `train_step` in this process, if there is one, or `train_step` itself is asked in every run.
      policy_epoch: Returns the incarnation of the learner whose version that is; by default 0.
      inference: How a TF policy is run: "lite", converted to TFLite, the quickest on a CPU;
        "graph", by TensorFlow; "auto", which is lite unless there is a GPU or the policy cannot be
        converted, and then says why in the log. Weights take effect at the start of a run. "lite"
        is refused where a run is one graph call.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        train_step: tf.Variable,
        steps_per_run: int | None = None,
        episodes_per_run: int | None = None,
        observers: Sequence[Observer] | None = None,
        transition_observers: Sequence[Callable] | None = None,
        info_observers: Sequence[Callable] | None = None,
        metrics: Sequence[Any] | None = None,
        reference_metrics: Sequence[Any] | None = None,
        image_metrics: Sequence[Any] | None = None,
        summary_dir: str | None = None,
        summary_interval: int = 1000,
        end_episode_on_boundary: bool = True,
        name: str = "",
        *,
        environment_step: tf.Variable | None = None,
        initial_random_steps: int = 0,
        seed: int | None = None,
        group_steps_per_run: int | None = None,
        policy_version: Callable[[], int] | None = None,
        policy_epoch: Callable[[], int] | None = None,
        inference: str = streams.AUTO,
    ) -> None:
        if not (steps_per_run or episodes_per_run or group_steps_per_run):
            raise ValueError(
                "an Actor needs steps_per_run, episodes_per_run or group_steps_per_run of at "
                "least 1"
            )
        if initial_random_steps and environment_step is None:
            raise ValueError(
                "initial_random_steps needs environment_step, which tells a resumed run that its "
                "random steps have been taken"
            )
        self._env = env
        self._policy = policy
        self._lanes: Any
        self._stream: Any
        self._unroll = graph_unroll.where_it_fits(env, policy, group_steps_per_run, inference)
        if self._unroll is not None:
            self._lanes, self._stream = self._unroll, self._unroll.inference
        else:
            self._lanes = lanes_lib.as_lanes(env)
            self._stream = streams.stream_for(
                policy, self._lanes.num_lanes, self._lanes.batched, inference=inference, seed=seed
            )
        self._random_stream = None
        if initial_random_steps:
            self._random_stream = python_inference.RandomInference(
                self._lanes.action_spec(),
                getattr(policy, "info_spec", ()),
                self._lanes.num_lanes,
                seed,
                mask=action_mask.for_policy(
                    policy, self._lanes.time_step_spec().observation, self._lanes.action_spec()
                ),
            )
        self._initial_random_steps = initial_random_steps
        self._environment_step = environment_step
        self._train_step = train_step
        self._max_steps = steps_per_run or np.inf
        self._max_episodes = episodes_per_run or np.inf
        self._max_group_steps = group_steps_per_run or np.inf
        self._end_episode_on_boundary = end_episode_on_boundary

        self._metrics = list(metrics or [])
        self._image_metrics = list(image_metrics or [])
        self._reference_metrics = list(reference_metrics or [])
        # An observer listed twice is called once, at its first place; so are statistics that
        # several metrics share.
        everyone = [*(observers or []), *self._metrics, *self._image_metrics]
        self._observers = list(dict.fromkeys(map(metrics_lib.observer_of, everyone)))
        self._transition_observers = list(transition_observers or [])
        self._info_observers = list(info_observers or [])

        self._write_summaries = bool(summary_dir)
        self._summaries = summaries_lib.Summaries(summary_dir, f"the actor {name!r}")
        self._summary_interval = summary_interval
        self._last_summary = -summary_interval  # So that step 0 is written as well.
        self._dense_summaries = row_limit.row_limit()
        self._name = name
        self._read_version = policy_version or (lambda: counters.latest(train_step))
        self._read_epoch = policy_epoch or (lambda: 0)
        self._version_is_certain = policy_version is not None
        self._policy_version = int(counters.read(train_step))
        self._steps_taken = 0
        self._time_step: ts.TimeStep
        self._boundaries: int  # Lanes whose next step is a reset.
        self.reset()

    @property
    def metrics(self) -> list[Any]:
        return self._metrics

    @property
    def image_metrics(self) -> list[Any]:
        return self._image_metrics

    @property
    def summary_writer(self) -> tf.summary.SummaryWriter:
        return self._summaries.writer

    @property
    def train_step(self) -> tf.Variable:
        return self._train_step

    @property
    def policy(self) -> Any:
        return self._policy

    @property
    def num_lanes(self) -> int:
        return self._lanes.num_lanes

    @property
    def policy_version(self) -> int:
        """The train step whose variables chose the actions of the current or latest run."""
        return self._policy_version

    @property
    def inference(self) -> str:
        """How the policy is run: "lite", "graph", "unroll", "python", "random", or a user's class.

        "unroll" is policy and environment in one graph call, for the steps of a whole run.
        """
        return streams.kind_of(self._stream)

    @property
    def steps_taken(self) -> int:
        """Environment steps of all complete runs of this actor; boundary steps do not count."""
        return self._steps_taken

    def run(self) -> None:
        """Runs until the steps, episodes or group steps of one run are done.

        What an observer raises ends the run. The step it was called with has been taken, and
        counts; the next run goes on after it, and the observers behind that one never see it. If
        that was in the middle of a graph call, the next run takes the steps that are left of it and
        no others, still as of the former policy version.
        """
        left_over = 0 if self._unroll is None else self._unroll.steps_left
        if not left_over:
            self._policy_version = int(self._read_version())
        max_group_steps = left_over or self._max_group_steps
        num_steps = 0
        num_episodes = 0
        num_group_steps = 0
        boundaries = self._boundaries
        stream = self._stream if left_over else self._choose_stream()
        observed = self._observers or self._transition_observers or self._info_observers
        lanes, num_lanes = self._lanes, self._lanes.num_lanes
        try:
            while (
                num_steps < self._max_steps
                and num_episodes < self._max_episodes
                and num_group_steps < max_group_steps
            ):
                time_step = self._time_step
                response = stream.act(time_step)
                next_time_step = lanes.step(response.action)
                # Before anybody may raise: the environment has gone on, and cannot go back.
                self._time_step = next_time_step
                ended = int(np.count_nonzero(next_time_step.step_type == LAST))
                num_steps += num_lanes - boundaries
                num_group_steps += 1
                num_episodes += boundaries if self._end_episode_on_boundary else ended
                self._boundaries = boundaries = ended
                if observed:
                    self._observe(time_step, response, next_time_step)
        finally:
            self._steps_taken += num_steps
            if self._environment_step is not None:
                counters.add(self._environment_step, num_steps)
        if (
            self._write_summaries
            and self._summary_interval > 0
            and self._policy_version - self._last_summary
            >= max(self._summary_interval, self._policy_version / self._dense_summaries)
        ):
            self.write_metric_summaries()
            self._last_summary = self._policy_version

    def run_and_log(self) -> None:
        """Runs once, then logs the metrics."""
        self.run()
        self.log_metrics()

    def write_metric_summaries(self) -> None:
        """Writes the metrics' values, against the train step and each reference metric.

        On a full disk they are left out, and count as lost.
        """
        if not self._summaries.have_room():
            return
        try:
            self._write_metric_summaries()
        except tf.errors.OpError as error:
            if not self._summaries.are_cause_of(error):
                raise

    def _write_metric_summaries(self) -> None:
        with self._summaries.writer.as_default(), tf.summary.record_if(True):
            for metric in self._metrics:
                _write(
                    tf.summary.scalar,
                    metric,
                    name=os.path.join("Metrics/", self._name, metric.name),
                    step=self._train_step,
                )
                for reference in self._reference_metrics:
                    _write(
                        tf.summary.scalar,
                        metric,
                        name=os.path.join(self._name, f"Metrics/{metric.name}/{reference.name}"),
                        step=reference.result(),
                    )
            for metric in self._image_metrics:
                _write(
                    tf.summary.image,
                    metric,
                    name=os.path.join("Metrics/", self._name, metric.name),
                    step=self._train_step,
                )

    def log_metrics(self) -> None:
        """Logs the metrics' values."""
        values = "\n\t\t ".join(f"{metric.name} = {metric.result()}" for metric in self._metrics)
        logging.info("%s \n\t\t %s", self._name, values)

    def reset(self) -> None:
        """Starts new episodes in all lanes, with a fresh policy state."""
        self._time_step = self._lanes.reset()
        self._boundaries = 0
        self._stream.reset()

    def close(self) -> None:
        """Closes the summary writer; the environment and observers belong to the caller."""
        self._summaries.close()

    def _choose_stream(self) -> Any:
        if self._random_stream is not None:
            if counters.read(self._environment_step) < self._initial_random_steps:
                return self._random_stream
            self._random_stream = None  # Steps only grow: there is no need to look again.
        # Streams of users need not know of versions.
        if (refresh := getattr(self._stream, "refresh", None)) is not None:
            refresh(self._policy_version, self._read_epoch(), certain=self._version_is_certain)
        return self._stream

    def _observe(self, time_step: ts.TimeStep, response: Any, next_time_step: ts.TimeStep) -> None:
        if not self._lanes.batched:
            time_step, next_time_step = self._lanes.previous, self._lanes.current
            info = response.policy_info
            if not (isinstance(info, tuple) and not info):  # Most policies have none.
                info = tree.map_structure(_without_lane, info)
            response = response._replace(action=self._lanes.action, policy_info=info)
        if self._transition_observers:
            policy_step = trajectory_lib.policy_step.PolicyStep(
                response.action, response.previous_state, response.policy_info
            )
            for observer in self._transition_observers:
                observer((time_step, policy_step, next_time_step))
        if self._observers:
            trajectory = trajectory_lib.Trajectory(
                step_type=time_step.step_type,
                observation=time_step.observation,
                action=response.action,
                policy_info=response.policy_info,
                next_step_type=next_time_step.step_type,
                reward=next_time_step.reward,
                discount=next_time_step.discount,
            )
            for observer in self._observers:
                observer(trajectory)
        if self._info_observers:
            info = self._lanes.get_info()
            for observer in self._info_observers:
                observer(info)


def collect_metrics(buffer_size: int) -> list[metrics_lib.EpisodeMetric]:
    """The metrics of data collection, over a window of `buffer_size` episodes."""
    statistics = metrics_lib.EpisodeStatistics(buffer_size)
    return [
        metrics_lib.NumberOfEpisodes(statistics),
        metrics_lib.EnvironmentSteps(statistics),
        metrics_lib.AverageReturn(statistics),
        metrics_lib.AverageEpisodeLength(statistics),
        metrics_lib.MinReturn(statistics),
        metrics_lib.MaxReturn(statistics),
    ]


def eval_metrics(buffer_size: int) -> list[metrics_lib.EpisodeMetric]:
    """The metrics of evaluation, over a window of `buffer_size` episodes."""
    statistics = metrics_lib.EpisodeStatistics(buffer_size)
    return [
        metrics_lib.AverageReturn(statistics),
        metrics_lib.AverageEpisodeLength(statistics),
        metrics_lib.MinReturn(statistics),
        metrics_lib.MaxReturn(statistics),
    ]


def _write(summary: Callable[..., Any], metric: Any, *, name: str, step: Any) -> None:
    """Writes one summary, or logs why not: a metric that has no number must not end a run."""
    try:
        summary(name=name, data=metric.result(), step=step)
    except ValueError as error:
        logging.error("No summary %r was written for %s: %s", name, metric, error)


def _without_lane(array: np.ndarray) -> np.ndarray:
    return array[0, ...]
