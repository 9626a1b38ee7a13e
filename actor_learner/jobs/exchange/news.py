"""The learner's news for the other jobs, and the checked bodies of messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from actor_learner.messaging import messages

TOPIC = "news"
POLICY, REPORT, RESULT, LEAVE = "policy", "report", "result", "leave"
"""Requests to the learner: for its policy, with an actor's counts, with an evaluator's result, and
from an evaluator that was told to end, so that the learner does not wait for it."""

SAVED = "saved"
"""Request to the learner of `main` from that of a further policy, which has saved all: whether
anybody may still need it, or it may end."""

NEWS_SECONDS = 0.05
"""Minimum time between two news, also while the learner waits."""

# Of all jobs together, so that the learner's cost does not grow with their number.
_NEWS_PER_SECOND = 1_000
_REPORTS_PER_SECOND = 400


def news_seconds(num_followers: int) -> float:
    """Returns the minimum time between two news, which grows beyond fifty followers."""
    return max(NEWS_SECONDS, num_followers / _NEWS_PER_SECOND)


def report_seconds(num_actors: int) -> float:
    """Returns the minimum time between two reports of an actor that need not wait for an answer."""
    return num_actors / _REPORTS_PER_SECOND


@dataclasses.dataclass(frozen=True)
class News:
    """The learner's progress, and how far actors may go.

    Attributes:
      epoch: The learner's incarnation; messages of an older one are refused.
      train_step: Train steps taken.
      version: The version of the policy that can be asked for.
      environment_step: Environment steps counted, over all actors.
      steps_allowed: Environment steps at which actors must wait for the learner.
      num_actors: How many actors share them.
      done: Whether training is complete, with `version` the final one.
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


_FIGURES = {"mean": float, "std": float, "min": float, "max": float, "episodes": int}
_RESULT = {
    "evaluator": int, "incarnation": str, "train_step": int, "environment_step": int, **_FIGURES,
}  # fmt: skip


def result_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Reads an evaluator's result.

    Raises:
      messages.BadMessageError: If it is something else.
    """
    result = checked(body, _RESULT)
    confirmed = body.get("confirmed")
    if confirmed is not None and not isinstance(confirmed, dict):
        raise messages.BadMessageError("`confirmed` of a result is not a map")
    result["confirmed"] = None if confirmed is None else checked(confirmed, _FIGURES)
    return result


def checked(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the named fields of a body, each of the given type, without any others.

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
