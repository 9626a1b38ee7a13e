"""How commands reach a worker and answers come back: letter boxes in the name registry.

Whoever commands adds `<run>/jobs/<kind>/<index>/command`; the worker takes it away, does as it is
told between two polls, and leaves its answer as `.../reply/<id>`. Both run out by themselves, so a
command that nobody took in time is never obeyed later, by a job restarted meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import Any

from actor_learner.jobs import names
from actor_learner.naming import name_errors, registry
from actor_learner.support import errors

STATUS = "status"
"""The request that every job answers at once, even during a poll, with its `status.Status`."""

REPLY_TTL = 60.0
_SHORTEST_TTL = 0.1


@dataclasses.dataclass(frozen=True)
class Command:
    """One command on its way.

    Attributes:
      id: Names the answer.
      command: One of `states.COMMANDS`.
      seconds: How long the sender waits for the answer.
    """

    id: str
    command: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a worker answered.

    Attributes:
      id: The command's.
      state: The worker's, after the command.
      error: Why it refused; None if it obeyed.
      poll_seconds: How long its present poll has lasted.
    """

    id: str
    state: str
    error: str | None = None
    poll_seconds: float = 0.0


def take(registry_: registry.NameRegistry, run: str, kind: str, index: int) -> Command | None:
    """Takes the next command out of a worker's box; None if it is empty. Does not wait.

    Raises:
      errors.JobError: If something else was in it.
    """
    try:
        text = registry_.take(names.command(run, kind, index))
    except name_errors.NameNotFoundError:
        return None
    return _read(Command, text)


def answer(registry_: registry.NameRegistry, run: str, kind: str, index: int, reply: Reply) -> None:
    """Leaves the answer to a command."""
    name = names.reply(run, kind, index, reply.id)
    registry_.add(name, json.dumps(dataclasses.asdict(reply)), ttl=REPLY_TTL, replace=True)


def post(
    registry_: registry.NameRegistry,
    run: str,
    kind: str,
    index: int,
    command: str,
    seconds: float,
) -> str | None:
    """Puts a command into a worker's box; returns the command's id. Does not wait.

    Args:
      seconds: How long the answer will be waited for.

    Returns:
      None if another command still lies in the box.
    """
    sent = Command(uuid.uuid4().hex, command, seconds)
    text = json.dumps(dataclasses.asdict(sent))
    try:
        registry_.add(names.command(run, kind, index), text, ttl=max(_SHORTEST_TTL, seconds))
    except name_errors.NameTakenError:
        return None
    return sent.id


def collect(
    registry_: registry.NameRegistry, run: str, kind: str, index: int, id_: str
) -> Reply | None:
    """Takes the answer to a command; None if there is none yet. Does not wait."""
    try:
        return _read(Reply, registry_.take(names.reply(run, kind, index, id_)))
    except name_errors.NameNotFoundError:
        return None


def _read(cls: type, text: str) -> Any:
    try:
        return cls(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise errors.JobError(
            f"the registry holds no {cls.__name__.lower()} ({error}) but {text[:200]!r}: something "
            "else than this version of actor-learner writes there"
        ) from error
