"""Rotates through a ring: steps one group while the actions of others are under way.

`inference latency < step time x (groups - 1)` removes all idling.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
from absl import logging
from tf_agents.metrics import py_metric
from tf_agents.trajectories import time_step as ts

from actor_learner.acting import graph_unroll, turn_times
from actor_learner.acting import ring as ring_lib
from actor_learner.environments import lanes as lanes_lib
from actor_learner.inference import groups, protocol
from actor_learner.support import errors

LAST = int(ts.StepType.LAST)

_NONE: Any = object()  # A ticket may be anything, None included.

RemoteMaker = Callable[[ring_lib.EnvironmentRing, Any], protocol.InferenceStream]
"""Makes the stream by which the groups of a ring ask for the actions of a policy elsewhere."""


def where_needed(
    env: Any,
    policy: Any,
    where: str,
    *,
    inference: str,
    seed: int | None,
    remote: RemoteMaker | None,
) -> Rotation | None:
    """The rotation of an actor; None where one group asks a policy on its own thread.

    Args:
      env: An environment, or a ring.
      policy: A policy, or an inference stream.
      where: "inline", "threaded" or "remote".
      inference: How a TF policy is run, as of `Actor`.
      seed: Of what the policy draws at random.
      remote: Makes the stream of "remote"; None if there is none.

    Raises:
      errors.ConfigError: If `where` is none of these, or policy and environment are one graph call.
    """
    groups.require_known(where)
    if where == groups.REMOTE and remote is None:
        logging.info("There are no policy jobs to ask for actions: inference is inline.")
        where = groups.INLINE
    several = isinstance(env, ring_lib.EnvironmentRing) and len(env) > 1
    given = groups.is_stream(policy)
    if where == groups.INLINE and not several and not given:
        return None
    ring = env if isinstance(env, ring_lib.EnvironmentRing) else ring_lib.EnvironmentRing([env])
    if graph_unroll.fits(ring.environments[0], policy):
        raise errors.ConfigError(
            f"the ring has {len(ring)} groups and inference is '{where}', but in a "
            "TensorEnvironment policy and environment are one graph call, with nothing to overlap: "
            f"leave out Experiment.ring_size, and Actor.inference_stream = '{where}'"
        )
    if given:
        return Rotation(ring, policy, protocol.kind_of(policy), owned=False)
    if where == groups.REMOTE and remote is not None:
        return Rotation(ring, remote(ring, policy), where)
    stream = groups.stream_of_groups(
        policy,
        len(ring),
        ring.lanes_per_group,
        ring.batched,
        where=where,
        inference=inference,
        seed=seed,
    )
    return Rotation(ring, stream, where)


class GroupStep(NamedTuple):
    """One batched step of one group.

    Attributes:
      group: Number of the group.
      time_step: What was acted on.
      response: What the policy answered.
      next_time_step: Where that led.
      boundaries: Lanes that were reset by this step.
      ended: Lanes whose next step is a reset.
    """

    group: int
    time_step: ts.TimeStep
    response: protocol.Response
    next_time_step: ts.TimeStep
    boundaries: int
    ended: int


class _Group:
    """What is known of a group between its turns at the head of the ring."""

    def __init__(self, lanes: lanes_lib.Lanes) -> None:
        self.lanes = lanes
        self.time_step: ts.TimeStep
        self.boundaries = 0  # Lanes whose next step is a reset.
        self.ticket: Any = _NONE  # Of the request that is under way, if there is one.


def _acting(stream: protocol.GroupInference) -> Callable[[_Group], protocol.Response]:
    return lambda group: stream.act(group.time_step)


class Rotation:
    """Steps the group at the head of a ring, and turns to the next.

    Where a stream answers later, the actions of a group are asked for as soon as its last step is
    taken, and waited for when it is at the head again. A stream that answers at once, on this
    thread, is asked only then, so that it answers with the latest policy.

    Requests stay under way between two runs of an actor: a policy that is refreshed meanwhile may
    come too late for them. The answers say which version chose.

    Args:
      ring: The environments.
      stream: Answers the time steps of each group, by its number.
      where: Where inference happens, in one word.
      owned: Whether `close` closes the stream.

    Attributes:
      stream: As given; so is `where`.
      lanes: Of the first group.
      lanes_per_group: Lanes of each group.
      num_lanes: Lanes of all groups.
    """

    def __init__(
        self,
        ring: ring_lib.EnvironmentRing,
        stream: protocol.InferenceStream,
        where: str,
        *,
        owned: bool = True,
    ) -> None:
        self.stream, self.where = stream, where
        self.lanes = ring.groups[0]
        self.lanes_per_group, self.num_lanes = ring.lanes_per_group, ring.num_lanes
        self._groups = [_Group(lanes) for lanes in ring.groups]
        self._stream = stream
        self._owned = owned
        self._answers_later = getattr(stream, "answers_later", True)
        self._head = 0

    def reset(self) -> None:
        """Starts new episodes in all lanes; answers that are still under way are dropped."""
        for number, group in enumerate(self._groups):
            if group.ticket is not _NONE:
                self._take_result(group)
            group.time_step = group.lanes.reset()
            group.boundaries = 0
            self._stream.reset(number)
        self._head = 0

    def lanes_of(self, group: int) -> lanes_lib.Lanes:
        """The lanes of a group."""
        return self._groups[group].lanes

    def observers_by_group(self, *observers: Sequence[Any]) -> list[list[list[Any]]]:
        """For each group, what its steps are shown to, for each of the given lists.

        Raises:
          errors.SpecMismatchError: For a metric that would take all groups for one.
        """
        several = len(self._groups) > 1
        for observer in (each for some in observers for each in some):
            if several and isinstance(observer, py_metric.PyMetric) and not _knows_groups(observer):
                raise errors.SpecMismatchError(
                    f"the metric {observer.name!r} ({type(observer).__name__}) follows episodes of "
                    f"one group of lanes, but the ring has {len(self._groups)}: use those of "
                    "actor_learner.acting.metrics, or give it a method for_group(number) that "
                    "returns what observes that group"
                )
        return [
            [
                [each.for_group(group) if _knows_groups(each) else each for each in some]
                for some in observers
            ]
            for group in range(len(self._groups))
        ]

    def ask_ahead(self) -> None:
        """Asks for the actions of all groups that have not, where the stream answers later."""
        if self._answers_later:
            for number, group in enumerate(self._groups):
                if group.ticket is _NONE:
                    group.ticket = self._stream.request(number, group.time_step)

    def step(
        self,
        random: protocol.GroupInference | None = None,
        times: turn_times.TurnTimes | None = None,
    ) -> GroupStep:
        """Steps the head, waiting for its actions if they have not come, and rotates.

        Args:
          random: Chooses the actions instead of the stream, which is not asked then.
          times: Takes down how long inference and the environment take, if given.

        Raises:
          errors.InferenceTimeoutError: If a stream that has a deadline does not answer in time;
            the request stays under way.
          Exception: Whatever inference or the environment raised. Nothing has rotated then.
        """
        number = self._head
        group = self._groups[number]
        time_step, boundaries = group.time_step, group.boundaries
        act = functools.partial(self._act, number) if random is None else _acting(random)
        step = group.lanes.step
        if times is not None:
            act = times.around(turn_times.INFERRING, act)
            step = times.around(turn_times.STEPPING, step)
        response = act(group)
        next_time_step = step(response.action)
        ended = int(np.count_nonzero(next_time_step.step_type == LAST))
        group.time_step, group.boundaries = next_time_step, ended
        self._head = (number + 1) % len(self._groups)
        if self._answers_later and random is None:
            # The step was taken, and must be observed. What is raised here is raised again when
            # the group is at the head and asks again.
            with contextlib.suppress(Exception):
                group.ticket = self._stream.request(number, next_time_step)
        return GroupStep(number, time_step, response, next_time_step, boundaries, ended)

    def _act(self, number: int, group: _Group) -> protocol.Response:
        if group.ticket is _NONE:
            group.ticket = self._stream.request(number, group.time_step)
        return self._take_result(group)

    def _take_result(self, group: _Group) -> protocol.Response:
        try:
            response = self._stream.result(group.ticket)
        except errors.InferenceTimeoutError:
            raise  # The ticket stays good.
        except Exception:
            group.ticket = _NONE
            raise
        group.ticket = _NONE
        return response

    def settle(self) -> None:
        """Waits for inference on this machine that reads variables which may change now."""
        if (settle := getattr(self._stream, "settle", None)) is not None:
            settle()

    def close(self) -> None:
        """Ends the stream, if it was made here; safe to call twice."""
        if self._owned:
            self._stream.close()


def _knows_groups(observer: Any) -> bool:
    return hasattr(observer, "for_group")


def for_groups(observers: Sequence[Any]) -> Any:
    """What an actor takes as one observer: the only one, or one for each group of its ring."""
    return observers[0] if len(observers) == 1 else PerGroup(observers)


class PerGroup:
    """One observer per group of a ring, each called with the steps of its group.

    Args:
      observers: One for each group, in their order.
    """

    def __init__(self, observers: Sequence[Any]) -> None:
        self.observers = tuple(observers)

    def for_group(self, group: int) -> Any:
        """The observer of a group."""
        return self.observers[group]

    def flush(self) -> None:
        """Flushes every observer."""
        for observer in self.observers:
            observer.flush()

    def abandon(self) -> None:
        """Gives up what is unconfirmed, of every observer."""
        for observer in self.observers:
            observer.abandon()
