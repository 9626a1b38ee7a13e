"""What a builder of agents gets, and what it gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner import experience
from actor_learner.support import errors


@dataclasses.dataclass(frozen=True)
class World:
    """What an agent is built for.

    Attributes:
      time_step_spec: `TimeStep` of tensor specs, without batch dimensions.
      action_spec: Nest of bounded tensor specs.
      train_step: Scalar int64 variable that each train step raises by one.
      environment_step: Scalar int64 variable, environment steps taken so far; schedules read it.
      num_lanes: Lanes of the actor that the collect policy will act for.
      first_lane: Number of its first lane among the lanes of all actors.
      total_lanes: Lanes of all actors; policies that explore differently per lane share them out.
    """

    time_step_spec: ts.TimeStep
    action_spec: Any
    train_step: tf.Variable
    environment_step: tf.Variable
    num_lanes: int = 1
    first_lane: int = 0
    total_lanes: int = 1

    @property
    def observation_spec(self) -> Any:
        return self.time_step_spec.observation


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An agent, with what its experience must look like.

    Attributes:
      agent: The thing that is trained.
      n_step: Steps of the return each transition holds. Replay sums the rewards, so that the agent
        itself is always a one-step agent.
      gamma: The agent's discount factor, by which those rewards are discounted.
      epsilon: For agents that explore epsilon-greedily, returns the current value; reported.
      kind: What the agent's `train` takes: `experience.TRANSITIONS`, `UNROLLS` or `SEQUENCES`.
      priorities: Of agents that can learn from prioritized replay: given the `LossInfo` of a train
        step, the new priorities `[batch]` of its items, before any exponent.
      initial_priorities: Of agents that learn from sequences: given sequences as the actor
        collected them (NumPy leaves `[n, L, ...]`, without observations and states but with policy
        info), the priorities `[n]` of the new items, before any exponent.
      burn_in: Of agents that learn from sequences: rows at the start of each, unless it begins an
        episode, that are not learned from.
      share_lanes: Of agents whose lanes explore differently: given the number of the actor's first
        lane among those of all actors, and how many these are, renews what each lane does. To be
        called after a checkpoint is restored, and when actors have come or gone.
      gauges: Further numbers of the agent that belong in its metrics, by name; each is called for
        every line of them.
      acts_with: Collects instead of the agent's collect policy; None is that.
    """

    agent: tf_agent.TFAgent
    n_step: int = 1
    gamma: float = 0.99
    epsilon: Callable[[], tf.Tensor] | None = None
    kind: str = experience.TRANSITIONS
    priorities: Callable[[tf_agent.LossInfo], tf.Tensor] | None = None
    initial_priorities: Callable[[experience.Sequence], Any] | None = None
    burn_in: int = 0
    share_lanes: Callable[[int, int], None] | None = None
    gauges: Mapping[str, Callable[[], float]] = dataclasses.field(default_factory=dict)
    acts_with: tf_policy.TFPolicy | None = None

    def __post_init__(self) -> None:
        if self.n_step < 1:
            raise errors.ConfigError(f"n_step must be at least 1, got {self.n_step}")
        if not 0.0 <= self.gamma <= 1.0:
            raise errors.ConfigError(f"gamma must lie in [0, 1], got {self.gamma}")
        kinds = (experience.TRANSITIONS, experience.UNROLLS, experience.SEQUENCES)
        if self.kind not in kinds:
            raise errors.ConfigError(f"kind must be one of {', '.join(kinds)}, got {self.kind!r}")

    @property
    def collect_policy(self) -> tf_policy.TFPolicy:
        """The policy that collects."""
        return self.agent.collect_policy if self.acts_with is None else self.acts_with

    @property
    def name(self) -> str:
        """The class of the agent; of one inside another, which scales or normalises for it."""
        agent = self.agent
        while (inner := getattr(agent, "inner", None)) is not None:
            agent = inner
        return type(agent).__name__


def as_algorithm(built: Any) -> Algorithm:
    """Takes what a builder returned: an `Algorithm`, or a bare agent of the user's own."""
    if isinstance(built, Algorithm):
        return built
    if isinstance(built, tf_agent.TFAgent):
        return Algorithm(built)
    raise errors.ConfigError(
        f"Experiment.agent built a {type(built).__name__}; it must return a TFAgent or an Algorithm"
    )
