"""A trained policy that acts for its agents inside a world that another policy's actor steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import action_mask
from actor_learner.environments import slot_group
from actor_learner.inference import protocol, streams
from actor_learner.inference import python as python_inference
from actor_learner.support import counters

LAST = int(ts.StepType.LAST)


class Resident:
    """Acts for the slots of one policy, and hands every step to observers: `AgentWorld.install`.

    ```python
    env.install("seekers", resident)
    while training:
        resident.begin_turn(version)
        actor.run()                      # Steps the world; asks the resident in every step.
        resident.end_turn()
    ```

    Args:
      group: Its slots.
      policy: A TF policy.
      observers: Called in order with the `Trajectory` of each step, leaves `[slots, ...]`.
      transition_observers: Called with `(time_step, policy_step, next_time_step)`.
      environment_step: Raised at the end of each turn by the steps its agents took.
      initial_random_steps: Acts at random until `environment_step` has reached this number.
      seed: Of random actions.

    Attributes:
      steps_taken: Steps of its agents so far; boundary steps do not count.
    """

    def __init__(
        self,
        group: slot_group.SlotGroup,
        policy: Any,
        *,
        observers: Sequence[Callable[[trajectory_lib.Trajectory], Any]] = (),
        transition_observers: Sequence[Callable[[Any], Any]] = (),
        environment_step: tf.Variable,
        initial_random_steps: int = 0,
        seed: int | None = None,
    ) -> None:
        self._group = group
        self._environment_step = environment_step
        self._initial_random_steps = initial_random_steps
        self._observers = list(observers)
        self._transition_observers = list(transition_observers)
        self._policy = streams.stream_for(policy, group.num_slots, True, seed=seed)
        self._random = None
        if initial_random_steps:
            self._random = python_inference.RandomInference(
                group.action_spec,
                policy.info_spec,
                group.num_slots,
                seed,
                mask=action_mask.for_policy(policy, group.observation_spec, group.action_spec),
            )
        self._acting: Any = self._random or self._policy
        self._idle = 0  # Slots that take no step in the current tick.
        self._counted = 0
        self.steps_taken = 0
        self.version = -1

    def begin_turn(self, version: int | None = None, epoch: int = 0) -> None:
        """Acts with the policy's variables as they are now, at random while that is due.

        Args:
          version: Of the policy, which must not change unless the version does; None: unknown.
          epoch: Incarnation of the learner whose version it is.
        """
        self.version = -1 if version is None else version
        if self._random is not None:
            if counters.read(self._environment_step) < self._initial_random_steps:
                return
            self._random = None
        self._acting = self._policy
        self._policy.refresh(version, epoch, certain=version is not None)

    def end_turn(self) -> None:
        """Raises `environment_step` by the steps of the turn."""
        counters.add(self._environment_step, self.steps_taken - self._counted)
        self._counted = self.steps_taken

    def reset(self) -> None:
        """Forgets the policy state of all slots."""
        self._policy.reset()

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        """Chooses actions for all slots."""
        self._idle = self._group.num_waiting + int(np.count_nonzero(time_step.step_type == LAST))
        return self._acting.act(time_step)

    def observe(self, transition: Any) -> None:
        """Takes in a step of the world."""
        self.steps_taken += self._group.num_slots - self._idle
        for observer in self._transition_observers:
            observer(transition)
        if self._observers:
            trajectory = trajectory_lib.from_transition(*transition)
            for observer in self._observers:
                observer(trajectory)
