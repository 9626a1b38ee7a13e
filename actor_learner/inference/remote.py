"""Asks for answers that are computed elsewhere, and asks again where one was lost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from concurrent import futures
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
import tree
from absl import logging
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import groups as groups_lib
from actor_learner.inference import policy_service, protocol, server
from actor_learner.messaging import messages
from actor_learner.messaging import protocol as wire_protocol
from actor_learner.support import configurable, errors, nest_access

RESEND_SECONDS = 2.0
_DEADLINE_SECONDS = 60.0
_GLANCE_SECONDS = 0.25
_VOICE_SECONDS = 10.0

CARRIED, HELD = "carried", "held"
"""Where the state of a recurrent policy is kept: by whoever asks, or by the server."""


class Servers(Protocol):
    """Those who may be asked, for a client that need not know where they are."""

    def client_for(
        self, group: int, silent: wire_protocol.Client | None
    ) -> wire_protocol.Client | None:
        """Whom a group asks now; None if nobody is there at present.

        Args:
          group: Number of the group; groups are shared out among servers.
          silent: Who was asked, and has not answered in time; None at first. The same one is
            returned if there is no other: it may be busy, or on its way back.
        """

    def check(self) -> None:
        """Called while a group waits: raises to end the wait."""

    def close(self) -> None:
        """Ends all connections."""


class OneServer:
    """The `Servers` of a client that knows only one.

    Args:
      client: Its wire; closed by `close`.
    """

    def __init__(self, client: wire_protocol.Client) -> None:
        self._client = client

    def client_for(
        self, group: int, silent: wire_protocol.Client | None
    ) -> wire_protocol.Client | None:
        return self._client

    def check(self) -> None:
        """A wait has no other end than its deadline."""

    def close(self) -> None:
        self._client.close()


class _Asked:
    """A request under way.

    Attributes:
      ticket: Its number among those of its group.
      arrays: What was asked.
      body: Likewise.
      client: Who was asked last; None if nobody was there.
      answer: Of that one.
      at: When it was asked last.
    """

    def __init__(
        self, ticket: int, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        self.ticket, self.body, self.arrays = ticket, body, arrays
        self.client: wire_protocol.Client | None = None
        self.answer: futures.Future[messages.Message] | None = None
        self.at = time.monotonic()


class ServiceClient:
    """Asks an `InferenceServer` for the answers of several groups of rows.

    A group has one request under way at a time. One that is not answered within `resend_seconds` is
    asked again, with the same ticket, of the same server or another; the first answer counts, and
    the server computes it once.

    Args:
      servers: Whom to ask; closed by `close`.
      num_groups: Groups.
      answer_spec: Arrays of an answer.
      who: Names this end in messages.
      held: Whether the server holds the state of the groups.
      kind: Name of the request on the wire.
      resend_seconds: See above.
    """

    def __init__(
        self,
        servers: Servers,
        num_groups: int,
        answer_spec: Mapping[str, messages.ArraySpec],
        *,
        who: str,
        held: bool = False,
        kind: str = server.INFER,
        resend_seconds: float = RESEND_SECONDS,
    ) -> None:
        self._servers = servers
        self._answer_spec = dict(answer_spec)
        self._who, self._held, self._kind = who, held, kind
        self._resend_seconds = resend_seconds
        self._id = uuid.uuid4().hex
        self._tickets = [0] * num_groups
        self._begin = [True] * num_groups
        self._asked: list[_Asked | None] = [None] * num_groups
        self.resent = 0  # Requests that were asked again.

    def begin(self, group: int) -> None:
        """Has the server begin with a fresh state for a group, which must have nothing under way.

        Raises:
          errors.InferenceError: If it has.
        """
        self._refuse_under_way(group)
        self._begin[group] = True

    def request(self, group: int, arrays: Mapping[str, np.ndarray]) -> int:
        """Asks; returns a ticket. The arrays, `[rows, ...]`, must not be written to meanwhile."""
        self._refuse_under_way(group)
        ticket = self._tickets[group]
        self._tickets[group] = ticket + 1
        body = {
            "client": self._id,
            "group": group,
            "ticket": ticket,
            "held": self._held,
            "begin": self._begin[group],
        }
        asked = self._asked[group] = _Asked(ticket, body, arrays)
        self._send(group, asked, None)
        return group  # Of one request at a time, that says it all.

    def result(self, ticket: int, timeout_seconds: float | None = None) -> messages.Message:
        """The answer, as of `InferenceStream.result`.

        Raises:
          errors.InferenceTimeoutError: If it has not come in time; the ticket stays valid.
          errors.InferenceError: If the server refuses, with its words.
        """
        group = ticket
        asked = self._asked[group]
        if asked is None:
            raise errors.InferenceError(f"group {group} of {self._who} has not asked for anything")
        began = time.monotonic()
        said_at = began
        while True:
            message = self._take(group, asked, _time_left(began, timeout_seconds))
            if message is not None:
                self._asked[group] = None
                self._begin[group] = False
                return message
            now = time.monotonic()
            if now - asked.at >= self._resend_seconds:
                self.resent += 1
                self._send(group, asked, asked.client)
            who = (
                f"group {group} of {self._who} has waited {now - began:.1f} s for its answer from "
                f"{_name(asked.client)}"
            )
            if timeout_seconds is not None and now - began >= timeout_seconds:
                raise errors.InferenceTimeoutError(who)
            if now - said_at >= _VOICE_SECONDS:
                said_at = now
                logging.warning("%s.", who[0].upper() + who[1:])
            self._servers.check()

    def close(self) -> None:
        """Ends all connections; safe to call twice."""
        self._servers.close()

    def _take(self, group: int, asked: _Asked, seconds: float) -> messages.Message | None:
        """Waits for an answer; None if it must be waited for again."""
        if asked.answer is None:
            time.sleep(min(seconds, _GLANCE_SECONDS))  # Nobody is there.
            return None
        try:
            message = asked.answer.result(max(0.0, min(seconds, _GLANCE_SECONDS)))
            messages.require_arrays(message, self._answer_spec)
            return message
        except futures.TimeoutError:
            return None
        except wire_protocol.NoAnswerError:
            asked.answer = None
            return None
        except wire_protocol.RefusedError as error:
            if str(error).startswith(server.UNKNOWN_STATE) and self._held:
                logging.warning(
                    "The state of group %d of %s is lost: %s has not got it. Its lanes go on with "
                    "a fresh one.",
                    group,
                    self._who,
                    _name(asked.client),
                )
                asked.body = {**asked.body, "begin": True}
                self._send(group, asked, None)
                return None
            self._asked[group] = None
            raise errors.InferenceError(
                f"{_name(asked.client)} refuses what group {group} of {self._who} asks: {error}"
            ) from error
        except messages.BadMessageError as error:
            self._asked[group] = None
            raise errors.InferenceError(
                f"{_name(asked.client)} answers group {group} of {self._who} with something else "
                f"than asked for: {error}"
            ) from error

    def _send(self, group: int, asked: _Asked, silent: wire_protocol.Client | None) -> None:
        asked.client = self._servers.client_for(group, silent)
        asked.at = time.monotonic()
        asked.answer = None
        if asked.client is not None:
            asked.answer = asked.client.submit(
                self._kind, asked.body, asked.arrays, timeout_seconds=_DEADLINE_SECONDS
            )

    def _refuse_under_way(self, group: int) -> None:
        if self._asked[group] is not None:
            raise errors.InferenceError(
                f"group {group} of {self._who} has a request under way: take its result first"
            )


@configurable.register
class RemoteInference:
    """The inference stream of an actor whose policy is run by policy jobs.

    Args:
      servers: Whom to ask; closed by `close`.
      policy: A TF policy like that of the servers; its variables are not read, but for
        `lane_values`.
      num_groups: Groups of lanes.
      lanes_per_group: Lanes of each.
      who: Names this end in messages.
      state: "carried": requests carry the state of a recurrent policy, so that any server can
        answer any of them; or "held": the server holds it, which saves the way there and back. If
        that server dies, its lanes go on with a fresh state, and `previous_state` is not known.
      resend_seconds: When to ask again.

    Attributes:
      version: Of the policy that gave the latest answer; -1 before the first.
      epoch: Of the learner whose version it is.
    """

    kind = groups_lib.REMOTE

    def __init__(
        self,
        servers: Servers,
        policy: Any,
        num_groups: int,
        lanes_per_group: int,
        *,
        who: str,
        state: str = CARRIED,
        resend_seconds: float = RESEND_SECONDS,
    ) -> None:
        if state not in (CARRIED, HELD):
            raise errors.ConfigError(f"state must be '{CARRIED}' or '{HELD}', got {state!r}")
        self.layout = layout = policy_service.Layout.of(policy)
        self._policy = policy
        self._lanes_per_group = lanes_per_group
        self._carries = bool(layout.state) and state == CARRIED
        self._pack_action = nest_access.packer(policy.action_spec)
        self._pack_info = nest_access.packer(policy.info_spec)
        initial = policy.get_initial_state(lanes_per_group)
        self._pack_state = nest_access.packer(initial)
        self._initial = [leaf.numpy() for leaf in tf.nest.flatten(initial)]
        self._states = [list(self._initial) for _ in range(num_groups)]
        self._previous: list[Any] = [()] * num_groups
        self._lane_values: list[np.ndarray | None] = [None] * num_groups
        answers = {**layout.action, **layout.info, **(layout.state if self._carries else {})}
        self._client = ServiceClient(
            servers,
            num_groups,
            answers,
            who=who,
            held=not self._carries,
            resend_seconds=resend_seconds,
        )
        self.version, self.epoch = -1, 0
        self.refresh()

    @property
    def holds_state(self) -> bool:
        """Whether the servers hold the state of the lanes, so that each group needs its own."""
        return bool(self.layout.state) and not self._carries

    @property
    def resent(self) -> int:
        """Requests that were asked again, because no answer had come."""
        return self._client.resent

    def reset(self, group: int) -> None:
        """Forgets the policy state of a group, which must have no request under way."""
        self._client.begin(group)
        self._states[group] = list(self._initial)

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Takes over what tells lanes apart; which version answers is the servers' affair."""
        del version, epoch, certain
        if self.layout.lane_values:
            for group in range(len(self._states)):
                first = group * self._lanes_per_group
                self._lane_values[group] = groups_lib.values_of_lanes(
                    self._policy, first, self._lanes_per_group
                ).astype(np.float32)

    def request(self, group: int, time_step: ts.TimeStep) -> int:
        layout = self.layout
        arrays = dict(zip(layout.time_step, tree.flatten(time_step)))
        if layout.lane_values:
            arrays[policy_service.LANE_VALUES] = self._lane_values[group]
        if self._carries:
            state = self._states[group]
            first = np.asarray(time_step.step_type) == ts.StepType.FIRST
            if first.any():  # As the policy will, so that both know what it acted on.
                state = [_fresh(first, *pair) for pair in zip(self._initial, state)]
            self._previous[group] = self._pack_state(state)
            arrays.update(zip(layout.state, state))
        return self._client.request(group, arrays)

    def result(self, ticket: int, timeout_seconds: float | None = None) -> protocol.Response:
        group = ticket
        message = self._client.result(ticket, timeout_seconds)
        arrays, body = message.arrays, message.body
        if self._carries:
            self._states[group] = [arrays[name] for name in self.layout.state]
        version, epoch = body.get("version"), body.get("epoch")
        if not isinstance(version, int) or not isinstance(epoch, int):
            raise errors.InferenceError(f"an answer without version and epoch: {body!r}")
        self.version, self.epoch = version, epoch
        # Copies: what comes off the wire cannot be written to, and belongs to the caller here.
        return protocol.Response(
            self._pack_action([arrays[name].copy() for name in self.layout.action]),
            self._pack_info([arrays[name].copy() for name in self.layout.info]),
            self._previous[group],
            str(body.get("policy", "")),
            version,
            epoch,
        )

    def close(self) -> None:
        self._client.close()


def _fresh(first: np.ndarray, initial: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return np.where(first.reshape([-1] + [1] * (kept.ndim - 1)), initial, kept)


def _time_left(began: float, timeout_seconds: float | None) -> float:
    if timeout_seconds is None:
        return _GLANCE_SECONDS
    return max(0.0, timeout_seconds - (time.monotonic() - began))


def _name(client: wire_protocol.Client | None) -> str:
    return "nobody: none is there" if client is None else str(getattr(client, "address", client))
