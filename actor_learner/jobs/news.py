"""What the learner tells the other jobs, and how actors report to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from actor_learner.messaging import messages

TOPIC = "news"
POLICY, REPORT, RESULT, LEAVE = "policy", "report", "result", "leave"
"""Requests to the learner: for its policy, with an actor's counts, with an evaluator's result, and
of an evaluator that was told to end: it is not to be waited for."""


@dataclasses.dataclass(frozen=True)
class News:
    """How far the learner is, and how far actors may go.

    Attributes:
      epoch: The learner's incarnation; what an older one says is refused.
      train_step: Train steps taken.
      version: The version of the policy that can be asked for.
      environment_step: Environment steps that the learner knows of, over all actors.
      steps_allowed: Environment steps by which actors are to wait for the learner.
      num_actors: How many actors share them.
      done: Training is complete, and `version` the final one.
    """

    epoch: int
    train_step: int
    version: int
    environment_step: int
    steps_allowed: int
    num_actors: int
    done: bool

    def body(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> News:
        """Reads what `body` returned.

        Raises:
          messages.BadMessageError: If it is something else.
        """
        return cls(**checked(body, {**dict.fromkeys(_COUNTS, int), "done": bool}))


_COUNTS = (
    "epoch", "train_step", "version", "environment_step", "steps_allowed", "num_actors",
)  # fmt: skip


def checked(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The named fields of a body, each of the type given; others are left out.

    Raises:
      messages.BadMessageError: If one is missing or of another type.
    """
    found = {}
    for name, kind in fields.items():
        value = body.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            wanted = getattr(kind, "__name__", str(kind))
            raise messages.BadMessageError(f"{name} is {value!r:.80}, not a value of type {wanted}")
        found[name] = value
    return found
