"""One group of an inference stream, for whoever has no other."""

from __future__ import annotations

from tf_agents.trajectories import time_step as ts

from actor_learner.inference import protocol


class OneGroup:
    """Acts by a stream: a request, and its result in the same breath.

    ```python
    Actor(env, one_group.OneGroup(stream, timeout_seconds=60.0), train_step, steps_per_run=64)
    ```

    Args:
      stream: Answers the group, wherever inference happens; the caller's to close.
      group: Which one.
      timeout_seconds: How long an answer may take; None waits as long as the other side is there.
    """

    def __init__(
        self,
        stream: protocol.InferenceStream,
        group: int = 0,
        *,
        timeout_seconds: float | None = None,
    ) -> None:
        self._stream = stream
        self._group = group
        self._timeout_seconds = timeout_seconds

    def reset(self) -> None:
        self._stream.reset(self._group)

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        self._stream.refresh(version, epoch, certain=certain)

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        ticket = self._stream.request(self._group, time_step)
        return self._stream.result(ticket, self._timeout_seconds)
