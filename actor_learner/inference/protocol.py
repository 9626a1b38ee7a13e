"""The protocol between an actor and whatever chooses its actions."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tf_agents.trajectories import time_step as ts

NestedArray = Any
"""A nest of NumPy arrays, every leaf `[lanes, ...]`."""

Ticket = Any
"""Stands for an answer that is to come; has a meaning only for the stream that issued it."""


class Response(NamedTuple):
    """What an inference stream answers for one batched time step.

    Attributes:
      action: Nest matching the action spec, leaves `[lanes, ...]`, owned by the caller.
      policy_info: Nest matching the policy's info spec, `()` if it has none; leaves `[lanes, ...]`.
      previous_state: The policy state the actions were computed from, after the lanes that begin
        an episode were reset; `()` for policies without state.
      policy: Name of the policy.
      version: Of the policy, as of the last `refresh`; -1 if nobody has said.
      epoch: Incarnation of the learner whose version it is.
    """

    action: NestedArray
    policy_info: NestedArray = ()
    previous_state: Any = ()
    policy: str = ""
    version: int = -1
    epoch: int = 0


class GroupInference(Protocol):
    """Answers the time steps of one group of lanes, on the thread of the caller.

    An actor with one group lives in this loop:

    ```python
    inference.reset()
    time_step = lanes.reset()
    while collecting:
        inference.refresh(version)                    # between runs, not on every step
        for _ in range(steps):
            response = inference.act(time_step)       # blocks for one inference
            next_time_step = lanes.step(response.action)
            observe(time_step, response, next_time_step)
            time_step = next_time_step
    ```

    It keeps the policy state of all lanes itself and resets a lane's state when that lane's step
    type is FIRST, so callers never carry it.
    """

    def reset(self) -> None:
        """Forgets the policy state of all lanes; call it when the environment was reset."""

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Acts with the policy's variables as they are now; between steps only.

        Args:
          version: Of the policy; None if it is unknown.
          epoch: Incarnation of the learner whose version it is.
          certain: Whether the weights are the same as long as version and epoch are.
        """

    def act(self, time_step: ts.TimeStep) -> Response:
        """Chooses actions for one TimeStep whose leaves are `[lanes, ...]` NumPy arrays."""


class InferenceStream(Protocol):
    """Answers the time steps of several groups of lanes, wherever inference happens.

    An actor that rotates through groups steps one while the actions of others are under way:

    ```python
    tickets = [stream.request(group, time_step) for group, time_step in enumerate(time_steps)]
    while collecting:
        for group, lanes in enumerate(groups):
            response = stream.result(tickets[group])           # waits if it has not come yet
            next_time_step = lanes.step(response.action)
            tickets[group] = stream.request(group, next_time_step)
            observe(group, time_steps[group], response, next_time_step)
            time_steps[group] = next_time_step
    stream.close()
    ```

    A group has one request under way at a time. The stream keeps the policy state of all lanes.

    A stream may have an attribute `answers_later`: False says that `request` itself computes the
    answer, so that there is nothing to gain by asking early. It is True by default.
    """

    def reset(self, group: int) -> None:
        """Forgets the policy state of a group; call it when its environment was reset."""

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Acts with the policy's variables as they are now, from the next request on."""

    def request(self, group: int, time_step: ts.TimeStep) -> Ticket:
        """Asks for the actions of a group; its time step must not be written to meanwhile."""

    def result(self, ticket: Ticket, timeout_seconds: float | None = None) -> Response:
        """The answer to a request, which may be asked for once.

        Args:
          ticket: What `request` returned.
          timeout_seconds: How long to wait; None waits as long as the other side is there, and
            says in the log after ten seconds who waits for whom.

        Raises:
          errors.InferenceTimeoutError: If no answer has come by then. The ticket stays valid.
          Exception: Whatever the inference itself raised.
        """

    def close(self) -> None:
        """Ends the stream; safe to call twice."""


def kind_of(stream: Any) -> str:
    """How a stream runs its policy, in one word: its `kind`, or its class if it has none."""
    return getattr(stream, "kind", type(stream).__name__)
