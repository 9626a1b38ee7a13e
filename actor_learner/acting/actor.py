"""The actor: runs a policy in an environment and hands every step to observers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tree
from absl import logging
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import action_mask
from actor_learner.acting import graph_unroll, metric_summaries, refreshing, turn_times
from actor_learner.acting import metrics as metrics_lib
from actor_learner.acting import ring as ring_lib
from actor_learner.acting import rotation as rotation_lib
from actor_learner.environments import lanes as lanes_lib
from actor_learner.inference import groups, streams
from actor_learner.inference import python as python_inference
from actor_learner.reporting import row_limit
from actor_learner.reporting import summaries as summaries_lib
from actor_learner.support import configurable, counters

Observer = Callable[[trajectory_lib.Trajectory], Any]

LAST = np.asarray(ts.StepType.LAST)  # Compared with in half the time that a plain number takes.

collect_metrics = metrics_lib.collect_metrics
eval_metrics = metrics_lib.eval_metrics


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
      env: A TF-Agents `PyEnvironment`, batched or not; `GymnasiumEnvironment` is one. Or an
        `EnvironmentRing` of several, which are stepped in rotation. Observers and metrics that have
        a method `for_group(number)` are then asked for what observes each group; others see the
        steps of all groups, one after the other.
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
        is lite or a run is one graph call; None follows `tf.random.set_seed`.
      group_steps_per_run: Stop a run after this many batched steps, each of which steps every lane
        of a group once, boundary steps included: what an unroll is made of. In a
        `TensorEnvironment` and with a TF policy these are one graph call.
      policy_version: Returns the version of the policy, for callers that know it as a plain number.
        Weights must not change while it stays the same. By default the learner that raises
        `train_step` in this process, if there is one, or `train_step` itself is asked in every run.
      policy_epoch: Returns the incarnation of the learner whose version that is; by default 0.
      inference: How a TF policy is run: "lite", converted to TFLite, the quickest on a CPU;
        "graph", by TensorFlow; "auto", which is lite unless there is a GPU or the policy cannot be
        converted, and then says why in the log. Weights take effect at the start of a run. "lite"
        is refused where a run is one graph call.
      refresh: When new weights take effect, at the start of a run: "run", in every one; "reset", if
        a lane has begun an episode since they did last; a number, if so many seconds have passed.
        Until then the actor acts, and items are marked, as of the version before. What TensorFlow
        reads in every call ("graph") knows only "run", and so do policy jobs ("remote").
      inference_stream: Where that happens: "inline", on the actor's own thread; "threaded", on a
        second one, so that a ring of two groups double-buffers; "remote", in the policy jobs of the
        run, inline where there are none.
      remote: Makes the stream of "remote", given the ring and the policy; None if there are no
        policy jobs.
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
        refresh: str | float = refreshing.RUN,
        inference_stream: str = groups.INLINE,
        remote: Callable[[ring_lib.EnvironmentRing, Any], Any] | None = None,
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
        self._rotation = rotation_lib.where_needed(
            env, policy, inference_stream, inference=inference, seed=seed, remote=remote
        )
        if isinstance(env, ring_lib.EnvironmentRing) and self._rotation is None:
            (env,) = env.environments
        self._unroll = graph_unroll.where_it_fits(env, policy, group_steps_per_run, inference, seed)
        if self._rotation is not None:
            self._lanes, self._stream = self._rotation.lanes, self._rotation.stream
        elif self._unroll is not None:
            self._lanes, self._stream = self._unroll, self._unroll.inference
        else:
            self._lanes = lanes_lib.as_lanes(env)
            self._stream = streams.stream_for(
                policy, self._lanes.num_lanes, self._lanes.batched, inference=inference, seed=seed
            )
        self._refreshing = refreshing.Refreshing(refresh, streams.kind_of(self._stream))
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
        if self._rotation is not None:
            self._by_group = self._rotation.observers_by_group(
                self._observers, self._transition_observers, self._info_observers
            )

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
        self._taken = (self._policy_version, self._read_epoch())
        self._steps_taken = 0
        self.times = turn_times.TurnTimes()
        """Where the time of turns goes; measured where whoever calls `run` says when one begins."""
        self._time_step: ts.TimeStep
        self._boundaries: int  # Lanes whose next step is a reset.
        self._idle: int  # Those, and lanes that wait for their turn: they take no step.
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
        """Lanes of all groups."""
        return (self._rotation or self._lanes).num_lanes

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
    def graph_unroll(self) -> graph_unroll.GraphUnroll | None:
        """What takes the steps of a whole run in one graph call; None if they are single ones."""
        return self._unroll

    @property
    def inference_stream(self) -> str:
        """Where that happens: "inline", "threaded", "remote", or a user's class."""
        return groups.INLINE if self._rotation is None else self._rotation.where

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
        if self._rotation is not None:
            self._run_rotation(self._rotation)
            return
        left_over = 0 if self._unroll is None else self._unroll.steps_left
        if not left_over and self._refreshing.is_due():
            self._take_version()
        max_group_steps = left_over or self._max_group_steps
        num_steps = 0
        num_episodes = 0
        num_group_steps = 0
        boundaries, idle = self._boundaries, self._idle
        stream = self._stream if left_over else self._choose_stream()
        observed = self._observers or self._transition_observers or self._info_observers
        lanes, num_lanes = self._lanes, self._lanes.num_lanes
        act, step, observe = stream.act, lanes.step, self._observe
        if self.times.is_timed:
            # With one graph call for both, all of it counts as stepping.
            infers = turn_times.INFERRING if self._unroll is None else turn_times.STEPPING
            act = self.times.around(infers, act)
            step = self.times.around(turn_times.STEPPING, step)
            observe = self.times.around(turn_times.WRITING, observe)
        try:
            while (
                num_steps < self._max_steps
                and num_episodes < self._max_episodes
                and num_group_steps < max_group_steps
            ):
                time_step = self._time_step
                response = act(time_step)
                next_time_step = step(response.action)
                # Before anybody may raise: the environment has gone on, and cannot go back.
                self._time_step = next_time_step
                ended = int(np.count_nonzero(next_time_step.step_type == LAST))
                num_steps += num_lanes - idle
                num_group_steps += 1
                num_episodes += boundaries if self._end_episode_on_boundary else ended
                self._boundaries = boundaries = ended
                self._idle = idle = ended + lanes.num_waiting
                if observed:
                    observe(time_step, response, next_time_step)
        finally:
            self._count(num_steps)
            self._refreshing.note(num_episodes)
        self._summarize_if_due()

    def _run_rotation(self, rotation: rotation_lib.Rotation) -> None:
        """The same, for groups that are stepped in rotation."""
        if self._refreshing.is_due():
            self._take_version()
        stream = self._choose_stream()
        random = stream if stream is self._random_stream else None
        if random is None:
            rotation.ask_ahead()
        num_lanes = rotation.lanes_per_group
        num_steps = num_episodes = num_group_steps = 0
        times = self.times if self.times.is_timed else None
        observe = self._observe
        if times is not None:
            observe = times.around(turn_times.WRITING, observe)
        try:
            while (
                num_steps < self._max_steps
                and num_episodes < self._max_episodes
                and num_group_steps < self._max_group_steps
            ):
                step = rotation.step(random, times)
                num_steps += num_lanes - step.boundaries
                num_group_steps += 1
                num_episodes += step.boundaries if self._end_episode_on_boundary else step.ended
                if step.response.version >= 0:  # It was asked for before this run, perhaps.
                    self._policy_version = step.response.version
                # Those of the group that was stepped.
                self._lanes = rotation.lanes_of(step.group)
                self._observers, self._transition_observers, self._info_observers = self._by_group[
                    step.group
                ]
                observe(step.time_step, step.response, step.next_time_step)
        finally:
            self._count(num_steps)
            self._refreshing.note(num_episodes)
        rotation.settle()
        self._summarize_if_due()

    def _count(self, num_steps: int) -> None:
        self._steps_taken += num_steps
        if self._environment_step is not None:
            counters.add(self._environment_step, num_steps)

    def _summarize_if_due(self) -> None:
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
            metric_summaries.write(
                self._summaries.writer,
                self._name,
                self._train_step,
                metrics=self._metrics,
                reference_metrics=self._reference_metrics,
                image_metrics=self._image_metrics,
            )
        except tf.errors.OpError as error:
            if not self._summaries.are_cause_of(error):
                raise

    def log_metrics(self) -> None:
        """Logs the metrics' values."""
        values = "\n\t\t ".join(f"{metric.name} = {metric.result()}" for metric in self._metrics)
        logging.info("%s \n\t\t %s", self._name, values)

    def reset(self) -> None:
        """Starts new episodes in all lanes, with a fresh policy state."""
        if self._rotation is not None:
            self._rotation.reset()
            return
        self._time_step = self._lanes.reset()
        # Slots of agents that have not joined yet are LAST from the start.
        self._boundaries = int(np.count_nonzero(self._time_step.step_type == LAST))
        self._idle = self._boundaries + self._lanes.num_waiting
        self._stream.reset()

    def close(self) -> None:
        """Closes the summary writer and the inference stream, unless that was given as policy.

        The environment and observers belong to the caller.
        """
        self._summaries.close()
        if self._rotation is not None:
            self._rotation.close()

    def _choose_stream(self) -> Any:
        if self._random_stream is not None:
            if counters.read(self._environment_step) < self._initial_random_steps:
                return self._random_stream
            self._random_stream = None  # Steps only grow: there is no need to look again.
        # Streams of users need not know of versions.
        if (refresh := getattr(self._stream, "refresh", None)) is not None:
            version, epoch = self._taken
            # Of weights that are not due, only what changes by itself is read.
            is_certain = self._version_is_certain or not self._refreshing.is_now
            refresh(version, epoch, certain=is_certain)
        return self._stream

    def _take_version(self) -> None:
        self._policy_version = int(self._read_version())
        self._taken = (self._policy_version, self._read_epoch())

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


def _without_lane(array: np.ndarray) -> np.ndarray:
    return array[0, ...]
