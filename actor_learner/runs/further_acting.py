"""The acting side of a policy that acts inside a world which another policy's actor steps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner.acting import metrics, resident, turn_rows
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.environments import agent_world
from actor_learner.inference import protocol
from actor_learner.support import errors


class FurtherActing:
    """Acts for the agents of one further policy, and writes their experience.

    ```python
    further = FurtherActing(
        experiment, plan, algorithm, env, "seekers", client, environment_step=step, seed=0
    )
    while training:
        further.begin_turn(version, epoch)
        acting.run()         # Steps the world, and asks the resident that was installed.
        further.end_turn()   # Returns when the server has confirmed what was written.
    ```

    Args:
      experiment: Of the policy: `Experiment.for_policy`.
      plan: The plan of that.
      algorithm: Its collect policy acts.
      env: The world; the policy is installed in it.
      policy: Name of the policy.
      client: Client of the replay server, or those of several.
      environment_step: Increased by the steps of each turn.
      seed: Of random actions.
      transition_observers: Called with each transition before it is written.

    Attributes:
      statistics: Statistics of its agents' episodes.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        plan: plan_lib.Plan,
        algorithm: algorithm_lib.Algorithm,
        env: agent_world.AgentWorld,
        policy: str,
        client: Any,
        *,
        environment_step: tf.Variable,
        seed: int,
        transition_observers: Sequence[Callable[[Any], None]] = (),
    ) -> None:
        self._closing = contextlib.ExitStack()
        self._writer = plan.observer(client, version=lambda: self._resident.version)
        self._closing.callback(self._writer.close)
        episodes = plan.episode_observer(client, lambda: self._resident.version)
        self._episodes = episodes
        if episodes is not None:
            self._closing.callback(episodes.close)
        group = env.groups[policy]
        writes: Any = self._writer
        if env.turn_based:
            writes = turn_rows.TurnRows(lambda: group.present, self._writer.add)
        takes_transitions = getattr(writes, "observes_transitions", False)
        self.statistics = metrics.EpisodeStatistics(experiment.reporting.window)
        self._resident = resident.Resident(
            group,
            algorithm.collect_policy,
            observers=[
                *([] if takes_transitions else [writes]),
                *([] if episodes is None else [episodes]),
                self.statistics,
            ],
            transition_observers=[*transition_observers, *([writes] if takes_transitions else [])],
            environment_step=environment_step,
            initial_random_steps=plan.initial_random_steps,
            seed=seed,
        )
        env.install(policy, _WholeSteps(self._resident))

    @property
    def steps_taken(self) -> int:
        """Steps of its agents so far; boundary steps do not count."""
        return self._resident.steps_taken

    @property
    def items_written(self) -> int:
        """Items written so far."""
        return self._writer.items_written

    def time_shares(self) -> dict[str, float]:
        """Returns nothing: the acting side of `main` measures the time of both."""
        return {}

    def begin_turn(self, version: int, epoch: int) -> None:
        """Call this before each turn; the policy acts with its variables as they are now.

        Args:
          version: Of the policy, which must not change unless the version does.
          epoch: Incarnation of the learner whose version it is.
        """
        self._resident.begin_turn(version, epoch)

    def end_turn(self) -> None:
        """Counts the steps of the turn, and waits until the server has confirmed all of it."""
        self._resident.end_turn()
        self._writer.flush()

    def close(self) -> None:
        """Writes what is left; safe to call twice."""
        self._closing.close()

    def abandon(self) -> None:
        """Drops at once what the server has not confirmed; call it instead of `close`."""
        self._writer.abandon()
        if self._episodes is not None:
            self._episodes.abandon()


class _WholeSteps:
    """Lets no writer that waits in vain for its server end a step of the world half-way.

    All agents take part in a step; the error comes before the next one, in which nothing was done.
    """

    def __init__(self, acting: resident.Resident) -> None:
        self._acting = acting
        self._failure: errors.ReplayTimeoutError | None = None
        self.reset = acting.reset

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._acting.act(time_step)

    def observe(self, transition: Any) -> None:
        try:
            self._acting.observe(transition)
        except errors.ReplayTimeoutError as error:
            self._failure = error
