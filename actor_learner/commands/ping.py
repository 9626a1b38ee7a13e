"""`actor-learner control RUN ping`: which workers of a run answer, and what they are at."""

from __future__ import annotations

import time
from collections.abc import Sequence

from actor_learner.jobs import control, states
from actor_learner.jobs import status as status_lib
from actor_learner.naming import registry

_LOOK_SECONDS = 0.05


def ping(
    names: registry.NameRegistry,
    run: str,
    workers: Sequence[status_lib.Status],
    timeout: float,
) -> dict[str, control.Reply]:
    """Asks all workers at once for a sign of life, which they give even during a poll.

    Unlike `Controller.send` it does not fail with the first that is silent: the answers of the
    others are what tells a worker that hangs from a registry that does.

    Args:
      names: The registry.
      run: Name of the run.
      workers: Whom to ask.
      timeout: Seconds that all of them have together.

    Returns:
      The answers, by the workers' names; those who are silent are missing.
    """
    deadline = time.monotonic() + timeout
    sent: dict[str, str] = {}
    replies: dict[str, control.Reply] = {}
    while True:
        left = deadline - time.monotonic()
        for status in workers:
            place = (run, status.kind, status.index)
            if status.name not in sent:
                # Another command may lie in its box; it is taken out between two polls.
                id_ = control.post(names, *place, states.PING, left)
                if id_ is not None:
                    sent[status.name] = id_
            elif status.name not in replies:
                reply = control.collect(names, *place, sent[status.name])
                if reply is not None:
                    replies[status.name] = reply
        if len(replies) == len(workers) or left <= 0:
            return replies
        time.sleep(_LOOK_SECONDS)
