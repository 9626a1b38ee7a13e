"""Further policies of a world with many agents, each with its own tables, learner, checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

import reverb
import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import experiment as experiment_lib
from actor_learner import run_directory
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.environments import agent_world
from actor_learner.inference import streams
from actor_learner.learning import policy_export
from actor_learner.replay.server import server
from actor_learner.reporting import jsonl
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs import further_acting, further_model, learning_side, pacing, table_checks
from actor_learner.support import errors, seeds

AGENTS = "agents"
"""Directory inside a run with one directory for each further policy."""


def directory_of(run: run_directory.RunDirectory, policy: str) -> run_directory.RunDirectory:
    """Returns the directory of a further policy's checkpoints, metrics and exported policies."""
    return run_directory.RunDirectory(run.path / AGENTS / policy)


class FurtherPolicy:
    """Trains one more policy in the process that trains `main`.

    ```python
    further = FurtherPolicy(experiment, env, "seekers", run, seed=0, turn_ticks=32)
    server = ReplayServer([*main_tables, *further.tables()])
    further.connect(server, client)
    while training:
        further.begin_turn()
        acting.run()
        further.train(ended=lambda: False)
    ```

    Args:
      experiment: The experiment of the run; `AgentSpec` says what differs.
      env: The world that its agents act in.
      policy: Name of the policy.
      run: Directory of the whole run.
      seed: Seed of the run; that of the policy is derived from it.
      turn_ticks: Maximum batched steps of one turn of the acting side.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        env: agent_world.AgentWorld,
        policy: str,
        run: run_directory.RunDirectory,
        *,
        seed: int,
        turn_ticks: int,
    ) -> None:
        self.name = policy
        self._env = env
        self._group = group = env.groups[policy]
        self._experiment = experiment.for_policy(env.spec_of(policy))
        self._run = directory_of(run, policy)
        self._seed = seeds.of(seed, "policy", policy)
        self._closing = contextlib.ExitStack()
        self._train_step = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_step")
        self._environment_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._algorithm = self._experiment.make_algorithm_for(
            algorithm_lib.World(
                time_step_spec=tensor_spec.from_spec(ts.time_step_spec(group.observation_spec)),
                action_spec=tensor_spec.from_spec(group.action_spec),
                train_step=self._train_step,
                environment_step=self._environment_step,
                num_lanes=group.num_slots,
                total_lanes=group.num_slots,
            )
        )
        self._plan = self._experiment.plan(
            self._algorithm,
            group.num_slots,
            run.run_id(),
            lanes_apart=env.turn_based,
            policy=policy,
            turn_ticks=turn_ticks,
        )

    def tables(self) -> list[reverb.Table]:
        """Makes the tables of this policy.

        Raises:
          errors.ConfigError: If a table does not suit the plan: see `table_checks`.
        """
        tables = self._plan.tables()
        for table in tables:
            table_checks.refuse_unfit(table, self._plan)
        return tables

    def connect(self, replay: server.ReplayServer, client: reverb.Client) -> None:
        """Builds what needs the server, restores a checkpoint, and joins the world."""
        self._server = replay
        plan = self._plan
        # From here on a learner job of this policy that continues is refused.
        self._run.path.mkdir(parents=True, exist_ok=True)
        self._epoch = epoch_lib.Epoch.begin(self._run)
        self._acting = further_acting.FurtherActing(
            self._experiment,
            plan,
            self._algorithm,
            self._env,
            self.name,
            client,
            environment_step=self._environment_step,
            seed=self._seed,
        )
        self._closing.callback(self._acting.close)
        rows = jsonl.JsonlLogger(self._run.metrics_jsonl)
        self._closing.callback(rows.close)
        self._learning = learning_side.LearningSide(
            self._experiment,
            plan,
            self._algorithm,
            self._run,
            replay.address,
            train_step=self._train_step,
            environment_step=self._environment_step,
            statistics=self._acting.statistics,
            steps_taken=lambda: self._acting.steps_taken,
            table=self._table_state,
            on_row=rows.write,
            why_no_sample=self._why_no_sample,
            while_saving=self._while_saving,
        )
        self._closing.callback(self._learning.close)
        self._learning.pacing = self._make_pacing()
        if self._algorithm.share_lanes is not None:
            self._algorithm.share_lanes(0, plan.num_lanes)

    @property
    def train_step(self) -> int:
        """Train steps so far."""
        return self._learning.train_step

    @property
    def environment_step(self) -> int:
        """Steps of its agents so far, including those before a resumption."""
        return self._learning.environment_step

    def install_greedy(self, env: agent_world.AgentWorld) -> None:
        """Installs the policy, acting greedily, in another copy of the world.

        Each evaluation begins with the variables that the policy has then.
        """
        install_greedy(env, self.name, self._algorithm.agent.policy)

    def start(self) -> None:
        """Begins to count time."""
        self._learning.start()

    def begin_turn(self) -> None:
        """Call this before each turn of the acting side."""
        self._acting.begin_turn(self.train_step, self._epoch.number)

    def train(self, ended: Callable[[], bool]) -> None:
        """Waits until the server has confirmed what was written, and takes the train steps due."""
        self._acting.end_turn()
        while not ended() and (due := self._learning.updates_due()) > 0:
            self._learning.train(due)
        self._learning.write_row_if_due()

    def save(self) -> None:
        """Stops the clock, saves a checkpoint, and writes a line of metrics."""
        self._learning.progress.stop()
        self._learning.save()
        self._learning.write_row()

    def save_after_failure(self) -> None:
        """Saves a checkpoint; if the agent is not finite, logs that instead."""
        self._learning.trainer.save_after_failure()

    def require_training(self) -> None:
        """Checks, at the end of a run, that the policy was trained at all: see `Pacing`."""
        self._learning.pacing.require_training(*self._learning.counters())

    def export(self) -> None:
        """Writes SavedModels of its policies."""
        policy_export.export_policies(
            str(self._run.policies), self._algorithm.agent, self._train_step
        )

    def describe(self) -> str:
        """Returns one line that says what was built."""
        agents = ", ".join(self._group.agents)
        return f"policy {self.name}: {self._algorithm.name}, trained, for {agents}"

    def close(self) -> None:
        """Ends every part; safe to call twice."""
        self._closing.close()

    @contextlib.contextmanager
    def _while_saving(self) -> Iterator[None]:
        self._epoch.require_latest()
        yield

    def _make_pacing(self) -> pacing.Pacing:
        learning, plan = self._learning, self._plan
        if plan.group_steps is None:
            environment_step, train_step = learning.counters()
            return pacing.ReplayPacing(
                plan,
                self._table_state,
                environment_step=environment_step,
                train_step=train_step,
            )
        per_batch = plan.stream.cells_per_batch(plan.experience)
        first, learner = learning.train_step, learning.trainer.learner

        def waiting(train_step: int) -> int:
            batches = self._acting.items_written // per_batch
            return batches - (train_step - first) - learner.skipped_steps

        return pacing.QueuePacing(plan, waiting)

    def _table_state(self) -> server.TableState:
        return self._server.info().tables[self._plan.stream.table_name]

    def _why_no_sample(self) -> str:
        return (
            f"the learner of the policy {self.name!r} has waited "
            f"{self._experiment.sample_timeout_seconds:g} s for a sample: "
            f"{self._table_state().describe()}"
        )


def install_greedy(env: agent_world.AgentWorld, name: str, policy: tf_policy.TFPolicy) -> None:
    """Installs a policy in a world, acting greedily; see `FurtherPolicy.install_greedy`."""
    greedy = experiment_lib.greedy(policy)
    env.install(name, _Latest(streams.stream_for(greedy, env.groups[name].num_slots, True)))


class _Latest:
    """Reads a policy's variables again whenever a new evaluation begins."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.act = stream.act

    def reset(self) -> None:
        self._stream.reset()
        self._stream.refresh()


class FurtherPolicies:
    """All policies of a world that are trained beside `main`; most runs have none.

    Args:
      experiment: The experiment of the run.
      env: The environment to act in; None if nothing is collected.
      run: Directory of the whole run.
      seed: Seed of the run.
      turn_ticks: As in `FurtherPolicy`.

    Raises:
      errors.ConfigError: If there are any, and `Experiment.overlap` is set.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        env: Any,
        run: run_directory.RunDirectory,
        *,
        seed: int,
        turn_ticks: int,
    ) -> None:
        names = further_model.trained_policies(env)
        if names and experiment.overlap:
            raise errors.ConfigError(
                f"Experiment.overlap is set, but the policies {names} are trained beside the main "
                "one, by turns with collecting: leave the binding out"
            )
        self._all = [
            FurtherPolicy(experiment, env, name, run, seed=seed, turn_ticks=turn_ticks)
            for name in names
        ]

    def tables(self) -> list[reverb.Table]:
        """Makes the tables of all further policies."""
        return [table for policy in self._all for table in policy.tables()]

    def connect(self, replay: server.ReplayServer, client: reverb.Client) -> None:
        """See `FurtherPolicy.connect`."""
        for policy in self._all:
            policy.connect(replay, client)

    def furnish(self, env: Any) -> None:
        """Installs all of them, acting greedily, in another copy of the world."""
        for policy in self._all:
            policy.install_greedy(env)

    def start(self) -> None:
        """Begins to count time."""
        for policy in self._all:
            policy.start()

    def begin_turn(self) -> None:
        """Call this before each turn of the acting side."""
        for policy in self._all:
            policy.begin_turn()

    def train(self, ended: Callable[[], bool]) -> None:
        """Takes the train steps that are due, one policy after the other."""
        for policy in self._all:
            policy.train(ended)

    def require_training(self) -> None:
        """Checks, at the end of a run, that each of them was trained at all: see `Pacing`."""
        for policy in self._all:
            policy.require_training()

    def save(self) -> None:
        """Saves the checkpoint of each."""
        for policy in self._all:
            policy.save()

    def save_after_failure(self) -> None:
        """Saves the checkpoint of each that is finite."""
        for policy in self._all:
            policy.save_after_failure()

    def export(self) -> None:
        """Writes SavedModels of their policies."""
        for policy in self._all:
            policy.export()

    def describe(self) -> list[str]:
        """Returns lines that say what was built."""
        return [policy.describe() for policy in self._all]

    def close(self) -> None:
        """Ends every part; safe to call twice."""
        for policy in reversed(self._all):
            policy.close()
