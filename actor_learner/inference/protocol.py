"""The protocol between an actor and whatever chooses its actions."""

from typing import Any, NamedTuple, Protocol

from tf_agents.trajectories import time_step as ts

NestedArray = Any
"""A nest of NumPy arrays, every leaf `[lanes, ...]`."""


class Response(NamedTuple):
    """What an inference stream answers for one batched time step.

    Attributes:
      action: Nest matching the action spec, leaves `[lanes, ...]`, owned by the caller.
      policy_info: Nest matching the policy's info spec, `()` if it has none; leaves `[lanes, ...]`.
      previous_state: The policy state the actions were computed from, after the lanes that begin
        an episode were reset; `()` for policies without state.
    """

    action: NestedArray
    policy_info: NestedArray = ()
    previous_state: Any = ()


class InferenceStream(Protocol):
    """Answers batched time steps with batched actions.

    An actor lives in this loop:

    ```python
    stream.reset()
    time_step = lanes.reset()
    while collecting:
        response = stream.act(time_step)              # blocks for one inference
        next_time_step = lanes.step(response.action)
        observe(time_step, response, next_time_step)
        time_step = next_time_step
    ```

    A stream keeps the policy state of all lanes itself and resets a lane's state when that lane's
    step type is FIRST, so callers never carry it.
    """

    def reset(self) -> None:
        """Forgets the policy state of all lanes; call it when the environment was reset."""

    def act(self, time_step: ts.TimeStep) -> Response:
        """Chooses actions for one TimeStep whose leaves are `[lanes, ...]` NumPy arrays."""
