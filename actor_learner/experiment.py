"""The experiment: the parts that a gin file binds, and how much of everything there is to be."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.policies import greedy_policy, tf_policy
from tf_agents.specs import tensor_spec

from actor_learner import (
    agent_spec,
    evaluation_settings,
    experiment_checks,
    run_settings,
    stream_choice,
)
from actor_learner import collecting as collecting_lib
from actor_learner import experience as experience_lib
from actor_learner import plan as plan_lib
from actor_learner.acting import ring as ring_lib
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.agents.networks import network_variables
from actor_learner.environments import factories
from actor_learner.replay.server import tables
from actor_learner.replay.streams import apart, sample_stream
from actor_learner.replay.writing import whole_episodes
from actor_learner.support import configurable, errors

PUBLISH_SECONDS, PUBLISH_SECONDS_QUEUED = 0.5, 0.125

BATCH_SIZE = 64

EPISODES = "episodes"
"""Name of the table with one row per episode."""

RANDOM_STEPS = 1_000
"""Random steps before an agent that learns from transitions begins, unless configured."""


@configurable.register
class Experiment:
    """What is to be trained, on what, and for how long; every runner takes the same one.

    Args:
      environment: Makes the environment: `@GymnasiumEnvironment`, or any callable that returns a
        TF-Agents `PyEnvironment`. It is given `seed` and, for evaluation, `num_envs`, if it takes
        them. May be left out where all experience is recorded; nothing is then evaluated, unless
        there is an `Evaluation.environment`.
      agent: Builds the agent: `@dqn`, `@sac`, ..., or any callable that takes a
        `World` and returns a `TFAgent` or an `Algorithm`.
      replay: The sample stream. None chooses by the algorithm: `@LaneReplay()` for transitions,
        `@UnrollQueue()` for on-policy unrolls, `@SequenceReplay()` for agents with memory.
      environment_steps: Environment steps to train for, over all lanes. The turn in which they are
        reached is completed, so that a run may take up to one turn more; as separate jobs, up to
        one turn of every actor. A turn is `collect_steps`, rounded up to all lanes.
      train_steps: Train steps to train for, where all experience is recorded (`@RecordedReplay()`)
        and no environment steps are taken; `Evaluation.interval` then counts train steps too.
      record: Record all collected experience in the run's `experience/`, to train on later. As
        separate jobs, every actor must have the run directory.
      initial_random_steps: Environment steps taken at random before learning begins. None: 1,000
        for agents that learn from transitions, none for the others, which need to know how their
        policy acted.
      learn_from: Environment step at which learning begins; None: after the random steps. It waits
        longer where the table cannot be sampled yet, for example because of a `min_size` limit.
      updates_per_step: Train steps per environment step from then on. 1 is one gradient step on
        `batch_size` transitions for each new transition; None is 1. On-policy algorithms use each
        step once, so that their ratio follows from the unroll and must not be set.
      collect_steps: Environment steps collected between two calls of the learner. More cost less
        overhead, and act longer on one policy. None: at least 64, and one step of every lane.
        On-policy algorithms collect what one train step uses, so that it must not be set.
      batch_size: Transitions, or sequences, per train step. `UnrollQueue` has a size of its own,
        `UnrollQueue.unrolls_per_batch`: this must then be left out.
      overlap: Collect in a thread while the learner trains, with a copy of the policy that is at
        most a turn or two behind. Worth it where acting and training take about as long as one
        another, or the environment waits rather than computes.
      ring_size: Groups of lanes that each actor rotates through, each an environment of its own
        with all the lanes that `environment` gives it: an actor has `ring_size` times `num_envs`
        lanes. More than one pays where actions are computed elsewhere meanwhile
        (`Actor.inference_stream`): two with a thread, more the longer a remote answer takes.
      deterministic: Two runs with one seed give the same metrics, bit for bit. Slower: TensorFlow
        uses deterministic operations, samples are drawn by the learner instead of by Reverb
        (`@SeededReplay()`), and collecting and learning never overlap.
      evaluation: How the policy is rated, and the return at which training ends. None is
        `Evaluation()`, whose arguments a gin file binds.
      sample_timeout_seconds: How long the learner waits for a sample before it gives up. With
        `overlap` also how long for one step of the environment, unless ten times its longest so far
        is more.
      checkpoints: What is saved on the way. None is `Checkpoints()`, whose arguments a gin file
        binds; likewise the others.
      reporting: How often the run tells how it goes.
      staleness: How old the policy may be that acts, where actors are jobs of their own.
      devices: On which devices of one process to collect and to learn at once.
      collecting: How the policy acts while it collects, and what is sent of what it meets.
    """

    def __init__(
        self,
        environment: Callable[..., py_environment.PyEnvironment] | None = None,
        agent: Callable[[algorithm_lib.World], Any] | None = None,
        *,
        replay: sample_stream.SampleStream | None = None,
        environment_steps: int = 100_000,
        train_steps: int | None = None,
        record: bool = False,
        initial_random_steps: int | None = None,
        learn_from: int | None = None,
        updates_per_step: float | None = None,
        collect_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        overlap: bool = False,
        ring_size: int = 1,
        deterministic: bool = False,
        evaluation: evaluation_settings.Evaluation | None = None,
        sample_timeout_seconds: float = 60.0,
        checkpoints: run_settings.Checkpoints | None = None,
        reporting: run_settings.Reporting | None = None,
        staleness: run_settings.Staleness | None = None,
        devices: run_settings.Devices | None = None,
        collecting: collecting_lib.Collecting | None = None,
    ) -> None:
        experiment_checks.check({k: v for k, v in locals().items() if k != "self"})
        self.is_offline = experiment_checks.is_offline(replay)
        self.environment = environment
        self.agent: Any = agent  # A callable: checked.
        self.train_steps: Any = train_steps  # None in runs that collect.
        self.record = record
        self._replay = replay
        self.environment_steps = environment_steps
        self._initial_random_steps = initial_random_steps
        self._learn_from = learn_from
        self._updates_per_step = updates_per_step
        self._collect_steps = collect_steps
        self._batch_size = batch_size
        self.overlap = overlap
        self.ring_size = ring_size
        self.deterministic = deterministic
        self.evaluation = evaluation_settings.Evaluation() if evaluation is None else evaluation
        self.sample_timeout_seconds = sample_timeout_seconds
        self.checkpoints = run_settings.Checkpoints() if checkpoints is None else checkpoints
        self.reporting = run_settings.Reporting() if reporting is None else reporting
        self.staleness = run_settings.Staleness() if staleness is None else staleness
        self.devices = run_settings.Devices() if devices is None else devices
        self.collecting = collecting_lib.Collecting() if collecting is None else collecting
        experiment_checks.check_collecting(self.collecting, self.is_offline)

    def train(
        self,
        run_dir: str | os.PathLike | None = None,
        *,
        seed: int | None = None,
        resume: bool = False,
        warm_start: str | os.PathLike | None = None,
        triggers: Sequence[Callable[[int], Any]] = (),
    ) -> Any:
        """Trains in this process, as `actor-learner train` does, and shows how it goes.

        The run directory has the same files, and the log the same lines; what TensorFlow prints
        goes there. Ctrl-C, or interrupting a notebook's cell, saves and then raises
        KeyboardInterrupt; `resume=True` goes on from there.

        Args:
          run_dir: Where everything goes; None makes a new directory under `runs/`.
          seed: Of everything random; None draws one, or takes that of the run to resume.
          resume: Go on with the run in `run_dir` instead of beginning one there.
          warm_start: A run, or stored parameters, whose policy this one begins with.
          triggers: Called as `trigger(train_step)` after each call of the learner. What they may
            want to look at is in `actor_learner.parts`: `parts.agent()`, `parts.run_dir()`, ...

        Returns:
          A `Result`: its `best` score, its `curve`, its `policy` to act with, all `rows`.

        Raises:
          errors.ConfigError: If anything about the experiment or the directory is wrong; a
            directory that was made for it is removed again.
          errors.ActorLearnerError: What ended training; a checkpoint was saved before.
          KeyboardInterrupt: If it was interrupted, once everything is saved.
        """
        # The package, which stands above all rooms, knows who runs experiments.
        import actor_learner

        return actor_learner.train(
            self,
            run_dir,
            seed=seed,
            resume=resume,
            warm_start_from=warm_start,
            triggers=triggers,
        )

    @property
    def can_evaluate(self) -> bool:
        """Whether there is an environment to rate policies in."""
        return self._evaluation_environment is not None

    @property
    def _evaluation_environment(self) -> Callable[..., py_environment.PyEnvironment] | None:
        return self.evaluation.environment or self.environment

    def make_environment(self, seed: int, **more: Any) -> py_environment.PyEnvironment:
        """Makes the environment that experience is collected in.

        Args:
          seed: Of all lanes.
          **more: Further arguments, such as `num_envs`, for environments that take them.
        """
        return factories.make(self.environment, seed=seed, **more)

    def make_acting_environment(self, seed: int) -> Any:
        """Makes what an actor acts in: the environment, or a ring of several.

        Args:
          seed: Of all lanes. Environments that take `first_lane` give each lane a seed by its
            number among all lanes of the actor; of others, each group has a seed of its own.
        """
        if self.ring_size == 1:
            return self.make_environment(seed)
        return ring_lib.make(self.environment, self.ring_size, seed)

    def make_evaluation_environment(self, seed: int, **more: Any) -> py_environment.PyEnvironment:
        """Makes an environment for evaluation, with lanes of its own.

        Args:
          seed: Of all lanes; `seeds` has one for each purpose, apart from those of training.
          **more: Further arguments, such as `make_kwargs`, for environments that take them.
        """
        return factories.make(
            self._evaluation_environment,
            seed=seed,
            **{"num_envs": self.evaluation.lanes, **more},
        )

    def make_algorithm(
        self,
        env: py_environment.PyEnvironment,
        train_step: tf.Variable,
        environment_step: tf.Variable,
    ) -> algorithm_lib.Algorithm:
        """Builds the agent for an environment's specs and lanes.

        Args:
          env: The environment that its collect policy will act in.
          train_step: Counts train steps.
          environment_step: Counts environment steps, over all lanes.
        """
        lanes = ring_lib.num_lanes(env)
        return self.make_algorithm_for(
            algorithm_lib.World(
                time_step_spec=tensor_spec.from_spec(env.time_step_spec()),
                action_spec=tensor_spec.from_spec(env.action_spec()),
                train_step=train_step,
                environment_step=environment_step,
                num_lanes=lanes,
                total_lanes=lanes,
            )
        )

    def offline_specs(self) -> tuple[Any, Any]:
        """Time step and action specs of the recorded experience, where there is nothing else."""
        return self._replay.specs()

    def make_offline_algorithm(
        self, train_step: tf.Variable, environment_step: tf.Variable
    ) -> algorithm_lib.Algorithm:
        """Builds the agent for the specs of the recorded experience."""
        return self.make_algorithm_for(
            algorithm_lib.World(*self.offline_specs(), train_step, environment_step)
        )

    def for_policy(self, spec: agent_spec.AgentSpec) -> Experiment:
        """This experiment, for a further policy of its world: with its agent and its training."""
        of_policy = copy.copy(self)
        of_policy.agent = spec.agent
        of_policy.collecting = spec.collecting
        of_policy._replay = spec.training.get("replay")
        of_policy._updates_per_step = spec.training.get("updates_per_step")
        of_policy._batch_size = spec.training.get("batch_size", BATCH_SIZE)
        of_policy._initial_random_steps = spec.training.get("initial_random_steps")
        of_policy._learn_from = of_policy._collect_steps = None
        return of_policy

    def make_algorithm_for(self, world: algorithm_lib.World) -> algorithm_lib.Algorithm:
        """Builds the agent for a world."""
        with network_variables.of_any_integers():
            algorithm = algorithm_lib.as_algorithm(self.agent(world))
        return acting_greedily(algorithm) if self.collecting.deterministic_action else algorithm

    def plan(
        self,
        algorithm: algorithm_lib.Algorithm,
        num_lanes: int,
        run_id: str | None = None,
        *,
        lanes_apart: bool = False,
        policy: str | None = None,
        turn_ticks: int = 0,
    ) -> plan_lib.Plan:
        """Decides everything that depends on the algorithm.

        Args:
          algorithm: What is trained.
          num_lanes: Lanes of each actor.
          run_id: Of the run, which the names of its tables then carry; None for plain names.
          lanes_apart: Whether lanes take steps of their own (`lanes.are_apart`).
          policy: Of a further policy of the world, the name, which its tables then carry.
          turn_ticks: Of a further policy, batched steps that are taken before it is trained.

        Raises:
          errors.ConfigError: If the settings do not fit the algorithm.
        """
        chosen = stream_choice.choose(
            algorithm,
            self._replay,
            deterministic=self.deterministic,
            save_replay=self.checkpoints.save_replay,
        )
        stream = chosen = stream_choice.with_window(chosen, algorithm, self.collecting)
        if policy is not None:
            stream = chosen.for_policy(policy, turn_ticks)
        names = self.collecting.tables
        if names:
            stream = stream_choice.with_table(stream, names[0])
        if lanes_apart:
            experiment_checks.refuse_memory(algorithm.agent.collect_policy, algorithm.name)
        if lanes_apart or self.collecting.after_done:
            stream = apart.Apart(
                stream,
                num_lanes,
                takes_turns=lanes_apart,
                after_done=self.collecting.after_done,
                postprocessors=self.collecting.postprocessors,
            )
        if run_id is not None:
            stream = stream.for_run(run_id)
        experience = sample_stream.Experience(
            whole_episodes.spec_after(
                algorithm.agent.collect_data_spec, self.collecting.postprocessors
            ),
            num_lanes // self._num_groups(num_lanes),
            algorithm.n_step,
            algorithm.gamma,
            algorithm.initial_priorities,
            algorithm.burn_in,
            self._num_groups(num_lanes),
        )
        stream.check(experience)
        group_steps = stream.group_steps_per_update(experience, self._batch_size)
        replays = algorithm.kind == experience_lib.TRANSITIONS
        random_steps = self._initial_random_steps
        if self.is_offline:
            random_steps = 0
        if random_steps is None:
            most = self.environment_steps - 1
            random_steps = min(RANDOM_STEPS, most) if replays else 0
        if random_steps and not replays:
            raise errors.ConfigError(
                f"Experiment.initial_random_steps is {random_steps}, but "
                f"{algorithm.name} learns from how its own policy acted: leave "
                "the binding out. Experiment.learn_from makes learning wait"
            )
        if group_steps is None and self.staleness.when_lagging == run_settings.DROP:
            raise errors.ConfigError(
                f"Staleness.when_lagging is '{run_settings.DROP}', but {algorithm.name} learns "
                f"from replay, whose experience is old by nature: use '{run_settings.WAIT}'"
            )
        if group_steps is None:
            updates_per_step = self._updates_per_step or 1.0
        elif self._updates_per_step is not None or self._learn_from:
            raise errors.ConfigError(
                f"{algorithm.name} learns from each step once, as soon as its "
                "unroll is complete: leave out Experiment.updates_per_step and "
                "Experiment.learn_from"
            )
        else:
            stream_choice.refuse_what_unrolls_ignore(
                chosen,
                algorithm.name,
                collect_steps=self._collect_steps,
                batch_size=None if self._batch_size == BATCH_SIZE else self._batch_size,
            )
            updates_per_step = 1.0 / (group_steps * experience.num_lanes)
        learn_from = random_steps if self._learn_from is None else self._learn_from
        learn_from = max(learn_from, stream.first_steps(experience))
        if learn_from >= self.environment_steps and not self.is_offline:
            raise errors.ConfigError(
                f"Experiment.environment_steps ({self.environment_steps}) ends before learning "
                f"begins: {type(stream).__name__} has its first sample after {learn_from} steps"
            )
        return plan_lib.Plan(
            stream=stream,
            experience=experience,
            batch_size=self._batch_size,
            initial_random_steps=random_steps,
            learn_from=learn_from,
            updates_per_step=updates_per_step,
            group_steps=group_steps,
            collect_steps=self._collect_steps or max(64, num_lanes),
            publish_seconds=self._publish_seconds_for(group_steps),
            copies=tuple(tables.of_run(name, run_id) if run_id else name for name in names[1:]),
            copy_size=self.collecting.copy_size,
            episode_table=self._episode_table(policy, run_id),
        )

    def _episode_table(self, policy: str | None, run_id: str | None) -> str | None:
        if not self.collecting.send_concise_info:
            return None
        name = EPISODES if policy is None else f"{policy}-{EPISODES}"
        return tables.of_run(name, run_id) if run_id else name

    def _num_groups(self, num_lanes: int) -> int:
        """Groups of an actor with so many lanes."""
        if self.is_offline:
            return 1  # Nobody acts.
        if num_lanes % self.ring_size:
            raise errors.ConfigError(
                f"an actor of this run has {num_lanes} lanes, which cannot be {self.ring_size} "
                "groups of as many (Experiment.ring_size)"
            )
        return self.ring_size

    def _publish_seconds_for(self, group_steps: int | None) -> float:
        if self.staleness.publish_seconds is not None:
            return self.staleness.publish_seconds
        return PUBLISH_SECONDS if group_steps is None else PUBLISH_SECONDS_QUEUED


def acting_greedily(algorithm: algorithm_lib.Algorithm) -> algorithm_lib.Algorithm:
    """The algorithm, whose policy acts greedily also while it collects.

    Raises:
      errors.ConfigError: If it learns from more than what was done and met.
    """
    policy = greedy(algorithm.agent.policy)
    said = algorithm.agent.collect_policy.info_spec
    if algorithm.kind == experience_lib.UNROLLS or said != policy.info_spec:
        raise errors.ConfigError(
            f"deterministic_action is set, but {algorithm.name} learns from how its collect policy "
            "chose, not only from what it did: leave the binding out, or use an agent that learns "
            "from transitions. R2D2 acts greedily with r2d2.epsilon_base = 0.0"
        )
    return dataclasses.replace(algorithm, acts_with=policy, epsilon=None)


def greedy(policy: tf_policy.TFPolicy) -> tf_policy.TFPolicy:
    """The policy that takes the most likely action, which is what evaluations rate."""
    if isinstance(policy, greedy_policy.GreedyPolicy):
        return policy
    return greedy_policy.GreedyPolicy(policy)
