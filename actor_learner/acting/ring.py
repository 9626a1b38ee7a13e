"""The ring: the groups of lanes that an actor rotates through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tree

from actor_learner.environments import factories
from actor_learner.environments import lanes as lanes_lib
from actor_learner.support import errors, seeds


class EnvironmentRing:
    """Environments that are stepped one after the other, each a group of lanes.

    ```python
    ring = EnvironmentRing([make_environment(seed, first_lane=0), make_environment(seed, 8)])
    actor = Actor(ring, policy, train_step, steps_per_run=64, inference_stream="threaded")
    ```

    Args:
      environments: One of each group, all with the same specs and as many lanes.

    Attributes:
      environments: As given; closed by `close`.
      groups: The same, as lanes.
      lanes_per_group: Lanes that one call steps.
      num_lanes: Lanes of all groups.
      batched: Whether arrays that observers see have a dimension of lanes.

    Raises:
      errors.SpecMismatchError: If there are none, or they differ.
      errors.ConfigError: If they are worlds of several agents, or several games of a league.
    """

    def __init__(self, environments: Sequence[Any]) -> None:
        if not environments:
            raise errors.SpecMismatchError("a ring needs at least one environment")
        if any(hasattr(env, "turn_based") for env in environments):
            raise errors.ConfigError(
                "a ring, and inference elsewhere, are for environments with one agent, and this is "
                "a world of several: leave out Experiment.ring_size and Actor.inference_stream"
            )
        if len(environments) > 1 and getattr(environments[0], "needs_league", False):
            raise errors.ConfigError(
                "opponents of a league play in one group of lanes: leave out Experiment.ring_size, "
                "and give the environment more lanes instead"
            )
        self.environments = tuple(environments)
        self.groups = tuple(lanes_lib.as_lanes(env) for env in environments)
        first = self.groups[0]
        for number, lanes in enumerate(self.groups[1:], 1):
            same = (
                lanes.num_lanes == first.num_lanes
                and lanes.batched == first.batched
                and tree.flatten(lanes.time_step_spec()) == tree.flatten(first.time_step_spec())
                and tree.flatten(lanes.action_spec()) == tree.flatten(first.action_spec())
            )
            if not same:
                raise errors.SpecMismatchError(
                    f"group {number} of the ring has {lanes.num_lanes} lanes of "
                    f"{lanes.time_step_spec().observation}, group 0 has {first.num_lanes} of "
                    f"{first.time_step_spec().observation}: all groups must be alike"
                )
        self.lanes_per_group: int = first.num_lanes
        self.num_lanes: int = first.num_lanes * len(self.groups)
        self.batched: bool = first.batched
        self.time_step_spec = first.time_step_spec
        self.action_spec = first.action_spec

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def name(self) -> str:
        """The name of the environment, or its class if it has none."""
        env = self.environments[0]
        return str(getattr(env, "name", type(env).__name__))

    @property
    def vectorization(self) -> str | None:
        """How the lanes of a group are stepped, if they say."""
        return getattr(self.environments[0], "vectorization", None)

    def close(self) -> None:
        """Closes all environments."""
        for env in self.environments:
            env.close()


def make(factory: factories.Factory | None, ring_size: int, seed: int) -> EnvironmentRing:
    """Makes the environments of an actor with several groups.

    Args:
      factory: Makes the environment of one group.
      ring_size: Groups.
      seed: Of all lanes. Environments that take `first_lane` give each lane a seed by its number
        among all lanes of the actor; of others, each group has a seed of its own.
    """
    made: list[Any] = []
    try:
        for group in range(ring_size):
            first_lane = sum(map(num_lanes, made))
            own = seed
            if group and not factories.takes(factory, "first_lane"):
                own = seeds.of(seed, "group", group)
            made.append(factories.make(factory, seed=own, first_lane=first_lane))
        return EnvironmentRing(made)
    except BaseException:
        for env in made:
            env.close()
        raise


def num_lanes(env: Any) -> int:
    """Lanes of an environment, or of all groups of a ring."""
    return env.num_lanes if isinstance(env, EnvironmentRing) else lanes_lib.as_lanes(env).num_lanes
