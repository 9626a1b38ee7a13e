"""Makes the inference stream of an actor with several groups of lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import inline, protocol, streams, threaded
from actor_learner.support import errors

INLINE, THREADED, REMOTE = "inline", "threaded", "remote"
WHERE = (INLINE, THREADED, REMOTE)


def require_known(where: str) -> None:
    """Raises `errors.ConfigError` unless `where` is "inline", "threaded" or "remote"."""
    if where not in WHERE:
        raise errors.ConfigError(
            f"inference_stream must be one of {', '.join(map(repr, WHERE))}, got {where!r}"
        )


def is_stream(policy: Any) -> bool:
    """Whether what was given as a policy answers the requests of several groups itself."""
    return hasattr(policy, "request") and hasattr(policy, "result")


def stream_of_groups(
    policy: Any,
    num_groups: int,
    lanes_per_group: int,
    batched: bool,
    *,
    where: str,
    inference: str = streams.AUTO,
    seed: int | None = None,
) -> protocol.InferenceStream:
    """What runs `policy` for several groups of lanes in this process.

    Args:
      policy: A TF policy, a Python policy, or an inference stream, which is returned as it is.
      num_groups: Groups.
      lanes_per_group: Lanes of each.
      batched: As of `streams.stream_for`; so are `inference` and `seed`.
      where: "inline", on the thread of the caller, or "threaded", on one of its own.
      inference: How a TF policy is run.
      seed: Of what the policy draws at random.

    Raises:
      errors.SpecMismatchError: If `policy` acts for one group only, and there are several.
    """
    if is_stream(policy):
        return policy
    made = [
        _group(policy, number * lanes_per_group, lanes_per_group, batched, inference, seed)
        for number in range(num_groups)
    ]
    if num_groups > 1 and any(group is policy for group in made):
        raise errors.SpecMismatchError(
            f"a {type(policy).__name__} keeps the state of one group of lanes, but there are "
            f"{num_groups}: give an object with request(group, time_step) and result(ticket), such "
            "as InlineInference of one for each group"
        )
    return threaded.ThreadedInference(made) if where == THREADED else inline.InlineInference(made)


def _group(
    policy: Any, first_lane: int, num_lanes: int, batched: bool, inference: str, seed: int | None
) -> protocol.GroupInference:
    own = policy
    if isinstance(policy, tf_policy.TFPolicy) and lanes_differ(policy):
        own = policy.for_lanes(num_lanes)
    stream = streams.stream_for(
        own, num_lanes, batched, inference=inference, seed=seed, first_lane=first_lane
    )
    return stream if own is policy else _SomeLanes(stream, policy, own, first_lane, num_lanes)


def lanes_differ(policy: Any) -> bool:
    """Whether each lane of an actor explores in a way of its own.

    Such a policy has `lane_values`, `[lanes]`, one number for each lane of the actor, which may be
    set; and `for_lanes(num_lanes)`, the same policy with values of its own for fewer lanes.
    """
    return getattr(policy, "lane_values", None) is not None


def values_of_lanes(policy: Any, first_lane: int, num_lanes: int) -> np.ndarray:
    """The `lane_values` of some lanes of an actor."""
    return np.take(policy.lane_values, range(first_lane, first_lane + num_lanes), mode="wrap")


class _SomeLanes:
    """Runs a policy whose lanes differ for some lanes of an actor.

    Args:
      stream: Runs `own`.
      policy: Of all lanes of the actor.
      own: Of the lanes of the group.
      first_lane: Of the group.
      num_lanes: Of the group.
    """

    def __init__(
        self,
        stream: protocol.GroupInference,
        policy: Any,
        own: Any,
        first_lane: int,
        num_lanes: int,
    ) -> None:
        self._stream, self._policy, self._own = stream, policy, own
        self._first_lane, self._num_lanes = first_lane, num_lanes
        self._values: np.ndarray | None = None
        self.kind = protocol.kind_of(stream)
        self.reset = stream.reset

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        values = values_of_lanes(self._policy, self._first_lane, self._num_lanes)
        if not np.array_equal(values, self._values):
            self._own.lane_values = self._values = values
        self._stream.refresh(version, epoch, certain=certain)

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        return self._stream.act(time_step)
