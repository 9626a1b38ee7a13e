"""The acting side of an experiment: an actor, with the observers that write its experience."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Callable

import reverb
import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner.acting import actor, graph_unroll, rotation, turn_rows, turn_times
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.environments import lanes as lanes_lib
from actor_learner.replay.recording import experience_recorder
from actor_learner.runs import step_watch
from actor_learner.support import configurable, errors


class ActingSide:
    """Collects experience turn by turn, and writes it to the replay server.

    ```python
    while not done:
        acting.run()  # One turn; returns when the server has confirmed what was written.
    ```

    Args:
      experiment: Says whether to record, and how long a step may take.
      plan: The plan of the experiment.
      algorithm: Its collect policy acts. The caller updates the policy's variables, between turns.
      env: The environment to act in. The caller closes it.
      client: Client of the replay server, or a list of those of several.
      train_step: Version of the policy that acts.
      environment_step: Increased by the environment steps of each turn.
      seed: Seed of random actions.
      recording_dir: Where experience is recorded, if the experiment says so; None if there is no
        run directory.
      summary_dir: Where summaries of the metrics go, against train steps, if a gin file asks for
        them by `Actor.summary_interval`; None writes none.
      policy_version: As in `Actor`: the version as a plain number, if the caller knows it.
      policy_epoch: As in `Actor`: the incarnation of the learner whose version it is.
      remote: As in `Actor`: makes the stream by which it asks the policy jobs of the run.
      transition_observers: Called with each `(time_step, policy_step, next_time_step)` before it
        is written.
      before_turn: Called before each turn.

    Attributes:
      actor: Steps the environment.
      statistics: Statistics of the episodes that have ended.
      metrics: Metrics of the actor.
      watch: Tells a slow environment from one that hangs.

    Raises:
      errors.ConfigError: If recording is asked for, and there is no directory to record to or
        agents take turns.
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
        remote: rotation.RemoteMaker | None = None,
        transition_observers: Sequence[Callable[[Any], None]] = (),
        before_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_turn = before_turn
        self._closing = contextlib.ExitStack()
        self._turns = 0
        self._items_per_turn: int | None = None
        self._recorder: Any = None
        self._episode_rows: Any = None
        self.watch = step_watch.StepWatch(experiment.sample_timeout_seconds)
        try:
            observers: list[Any] = [self.watch]
            if experiment.record:
                if lanes_lib.are_apart(env):
                    raise errors.ConfigError(
                        "Experiment.record is set, but recordings hold rows of lanes that step "
                        "together, and here agents take turns: leave the binding out"
                    )
                observers.append(self._open_recorder(recording_dir, algorithm, plan))
            if plan.episode_table is not None:
                observers.append(self._open_episode_rows(plan, client))
            writers = []
            for _ in range(plan.num_groups):
                writers.append(plan.observer(client, version=lambda: self.actor.policy_version))
                self._closing.callback(writers[-1].close)
            writes = self._writer = rotation.for_groups(writers)
            transitions = getattr(writers[0], "observes_transitions", False)
            if lanes_lib.are_apart(env):
                writes = turn_rows.TurnRows(lambda: env.present, self._writer.add)
                transitions = writes.observes_transitions
            self.metrics = actor.collect_metrics(experiment.reporting.window)
            self.statistics = self.metrics[0].statistics
            # By default only the lines of metrics have these values.
            summarizes = configurable.is_bound("Actor.summary_interval")
            group_steps = plan.group_steps
            if group_steps is not None and lanes_lib.are_apart(env):
                # Each lane fills its unrolls at its own pace: a turn ends with a batch of them.
                self._items_per_turn = plan.stream.cells_per_batch(plan.experience)
                group_steps = 1
            if group_steps is None and graph_unroll.fits(env, algorithm.collect_policy):
                group_steps = plan.steps_per_turn // plan.num_lanes
            self.actor = actor.Actor(
                env,
                algorithm.collect_policy,
                train_step,
                steps_per_run=None if group_steps else plan.collect_steps,
                group_steps_per_run=group_steps,
                observers=[*([] if transitions else [writes]), *observers],
                transition_observers=[*transition_observers, *([writes] if transitions else [])],
                metrics=self.metrics,
                summary_dir=summary_dir if summarizes else None,
                environment_step=environment_step,
                initial_random_steps=plan.initial_random_steps,
                seed=seed,
                policy_version=policy_version,
                policy_epoch=policy_epoch,
                remote=remote,
            )
            if (take := getattr(self._writer, "take_whole_unrolls_of", None)) is not None:
                take(self.actor.graph_unroll)
        except BaseException:
            self._closing.close()
            raise
        self._closing.callback(self.actor.close)

    @property
    def turns(self) -> int:
        """Complete turns: the server has confirmed all that they wrote."""
        return self._turns

    @property
    def steps_taken(self) -> int:
        """Environment steps of all turns so far, including a turn that failed."""
        return self.actor.steps_taken

    def time_shares(self) -> dict[str, float]:
        """Returns how the time of the last second or more was spent: see `TurnTimes.shares`."""
        return {kind: round(share, 4) for kind, share in self.actor.times.shares().items()}

    def run(self) -> None:
        """Takes one turn; returns when the server has confirmed all that was written."""
        self._before_turn()
        times = self.actor.times
        times.begin_turn()
        if self._items_per_turn is None:
            self.actor.run()
        else:
            enough = (self._turns + 1) * self._items_per_turn
            while self._writer.items_written < enough:
                self.actor.run()
        flush = self._writer.flush
        (times.around(turn_times.WRITING, flush) if times.is_timed else flush)()
        times.end_turn()
        self._turns += 1

    def save_recording(self) -> None:
        """Writes what the recorder holds in memory, if there is one."""
        if self._recorder is not None:
            self._recorder.flush()

    def close(self) -> None:
        """Writes what is left, and ends the actor and the recording; safe to call twice."""
        self._closing.close()

    def abandon(self) -> None:
        """Drops at once what the server has not confirmed; call it instead of `close`.

        `close` would write what is left to whichever server answers by then.
        """
        self._writer.abandon()
        if self._episode_rows is not None:
            self._episode_rows.abandon()
        self.save_recording()

    def _open_episode_rows(self, plan: plan_lib.Plan, client: reverb.Client) -> Any:
        rows = [
            plan.episode_observer(client, lambda: self.actor.policy_version)
            for _ in range(plan.num_groups)
        ]
        for each in rows:
            self._closing.callback(each.close)
        self._episode_rows = rotation.for_groups(rows)
        return self._episode_rows

    def _open_recorder(
        self, directory: Any, algorithm: algorithm_lib.Algorithm, plan: plan_lib.Plan
    ) -> Any:
        if directory is None:
            raise errors.ConfigError(
                "Experiment.record is set, but this actor has no run directory to record to: pass "
                "--run=some/place/NAME"
            )
        recorders = []
        for _ in range(plan.num_groups):
            recorders.append(
                experience_recorder.ExperienceRecorder(
                    directory,
                    algorithm.agent.collect_data_spec,
                    plan.lanes_per_group,
                    version=lambda: self.actor.policy_version,
                )
            )
            self._closing.callback(recorders[-1].close)
        self._recorder = rotation.for_groups(recorders)
        return self._recorder
