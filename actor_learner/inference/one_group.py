"""One group of an inference stream, for whoever has no other."""

from __future__ import annotations

from typing import Any

from tf_agents.trajectories import time_step as ts

from actor_learner.inference import protocol
from actor_learner.support import errors

_NONE: Any = object()  # A ticket may be anything, None included.


class OneGroup:
    """Acts by a stream: a request, and its result in the same breath.

    ```python
    Actor(env, one_group.OneGroup(stream, timeout_seconds=60.0), train_step, steps_per_run=64)
    ```

    After a timeout the request stays open: the next `act`, of the same time step, waits for its
    result, and `reset` takes it before it forgets the policy state.

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
        self._ticket = _NONE  # Of the request that is open, if there is one.

    def reset(self) -> None:
        if self._ticket is not _NONE:
            self._take_result()
        self._stream.reset(self._group)

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        self._stream.refresh(version, epoch, certain=certain)

    def act(self, time_step: ts.TimeStep) -> protocol.Response:
        if self._ticket is _NONE:
            self._ticket = self._stream.request(self._group, time_step)
        return self._take_result()

    def _take_result(self) -> protocol.Response:
        try:
            response = self._stream.result(self._ticket, self._timeout_seconds)
        except errors.InferenceTimeoutError:
            raise  # The ticket stays good.
        except Exception:
            self._ticket = _NONE
            raise
        self._ticket = _NONE
        return response
