"""Describes the state of a job, over its wire and in its record, as a small JSON object."""

from __future__ import annotations

import dataclasses
import json
import traceback
from collections.abc import Mapping
from typing import Any

from actor_learner import jobs_settings
from actor_learner.jobs import states
from actor_learner.jobs.presence import names
from actor_learner.support import blame, errors, formatting

LONGEST_TRACEBACK = 8_000
"""Characters of a traceback kept in a status: its end, where the cause is."""

_LONGEST_MESSAGE = 2_000

RAISED_IN = "\nRaised in: "
"""In what is shown of a failure, between its message and the line of the user's code."""

STUCK_SECONDS = 10.0
"""A poll that lasts longer is pointed out."""

_LONGEST_DETAILS = 8_000
_KNOWN = ("steps", "version", "version_lag", "message")


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception that ended a job.

    Attributes:
      type: Name of its class.
      message: Its text.
      traceback: Where it came from, causes included.
      shown: What a user is to see of it: what it says, and the line of their own code that raised
        it; the traceback if it is nobody's fault but ours.
    """

    type: str
    message: str
    traceback: str
    shown: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        text = _text("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        if len(text) > LONGEST_TRACEBACK:
            text = f"[...]\n{text[-LONGEST_TRACEBACK:]}"
        message = _text(str(error))[:_LONGEST_MESSAGE]
        where = blame.accused(error)
        if where is not None:
            shown = f"{type(error).__name__}: {message}{RAISED_IN}{_text(where)}"
        else:
            shown = message if isinstance(error, errors.ActorLearnerError) else text.rstrip()
        return cls(type(error).__name__, message, text, f"error: {shown}")


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of one job when it was last asked.

    Attributes:
      kind: replay, actor, learner, evaluator, or a user's own.
      index: Which one of its kind.
      state: One of `states.ALL`; only a controller sets `lost`.
      pid: Its process.
      host: Its machine.
      incarnation: Differs between a process of a job and the one that replaces it.
      restarts: How often it has been restarted.
      steps: Its count: environment steps of an actor, train steps of a learner, ...
      steps_per_second: How fast the count grows; None while the job does not run.
      version: Train step of the policy it has.
      version_lag: How many versions it is behind; None if unknown.
      poll_seconds: How long the current poll has lasted; 0 between two polls.
      silent_seconds: How long the job has not answered, as seen by a controller; 0 if it does.
      message: What it is doing, in a few words.
      failure: What ended it, if its state is `error`.
      details: Other values that the worker contributes.
    """

    kind: str
    index: int
    state: str
    pid: int = 0
    host: str = ""
    incarnation: str = ""
    restarts: int = 0
    steps: int | None = None
    steps_per_second: float | None = None
    version: int | None = None
    version_lag: int | None = None
    poll_seconds: float = 0.0
    silent_seconds: float = 0.0
    message: str = ""
    failure: Failure | None = None
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return names.job(self.kind, self.index)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Status:
        """Reads what `to_json` wrote; ignores fields that a later version has added.

        Raises:
          errors.JobError: If it is something else.
        """
        try:
            content = json.loads(text)
            fields = {key: value for key, value in content.items() if key in _TYPES}
            if fields.get("failure") is not None:
                fields["failure"] = Failure(**fields["failure"])
                if not all(
                    isinstance(text, str) for text in dataclasses.astuple(fields["failure"])
                ):
                    raise TypeError("its failure does not consist of strings")
            for key, value in fields.items():
                if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
                    raise TypeError(f"{key} is {str(value)[:80]!r}")
            status = cls(**fields)
            jobs_settings.check_kind(status.kind)
            if status.state not in states.ALL or status.index < 0:
                raise ValueError(f"its state is {status.state[:80]!r}, its index {status.index}")
            return status
        except (AttributeError, TypeError, ValueError, RecursionError, errors.ConfigError) as error:
            raise errors.JobError(
                f"not the status of a job ({error}): {str(text)[:200]!r}"
            ) from error

    def describe(self) -> str:
        """One line for people: `actor-0: running, 1.2k/s, version 1,200`."""
        parts = [self.state]
        if self.steps is not None:
            parts.append(f"{formatting.count(self.steps)} steps")
        if self.steps_per_second is not None:
            parts.append(formatting.rate(self.steps_per_second))
        if self.version is not None:
            parts.append(f"version {formatting.count(self.version)}")
        if self.version_lag:
            parts.append(f"{formatting.count(self.version_lag)} behind")
        note = self.note()
        return f"{self.name}: {', '.join(parts)}{f' ({note})' if note else ''}"

    def note(self) -> str:
        """Returns what deserves attention: a failure, silence, a long poll, or its message."""
        if self.failure is not None:
            lines = self.failure.message.strip().splitlines()
            return f"{self.failure.type}: {lines[0]}" if lines else self.failure.type
        if self.silent_seconds:
            return f"silent for {formatting.duration(self.silent_seconds)}"
        if self.state in states.LIVE and self.poll_seconds > STUCK_SECONDS:
            return f"in the same poll for {formatting.duration(self.poll_seconds)}"
        return self.message


_NUMBER = (int, float)
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("kind", "state", "host", "incarnation", "message"), str),
    **dict.fromkeys(("index", "pid", "restarts"), int),
    **dict.fromkeys(("steps", "version", "version_lag"), (int, type(None))),
    **dict.fromkeys(("poll_seconds", "silent_seconds"), _NUMBER),
    "steps_per_second": (*_NUMBER, type(None)),
    "failure": (Failure, type(None)),
    "details": dict,
}
"""What each field of a status may be when it is read."""


@dataclasses.dataclass(frozen=True)
class Contribution:
    """The checked result of a worker's `status()`.

    Attributes:
      known: `steps`, `version`, `version_lag` and `message`, where given.
      details: All other values.
    """

    known: Mapping[str, Any]
    details: Mapping[str, Any]

    @classmethod
    def of(cls, who: str, contributed: Mapping[str, Any]) -> Contribution:
        """Checks the result of a worker's `status()`.

        Raises:
          errors.JobError: If it is not a small JSON object; NumPy scalars count as numbers.
        """
        if not isinstance(contributed, Mapping):
            raise errors.JobError(
                f"status() of {who} returned a {type(contributed).__name__}; it must return a dict "
                "such as {'steps': 100, 'version': 7}"
            )
        plain = {key: _plain(value) for key, value in contributed.items()}
        try:
            text = json.dumps(plain)
        except (TypeError, ValueError) as error:
            raise errors.JobError(
                f"status() of {who} returned {plain!r}, which JSON cannot represent: {error}"
            ) from error
        if len(text) > _LONGEST_DETAILS:
            raise errors.JobError(
                f"status() of {who} returned {len(text):,} characters of JSON; the limit is "
                f"{_LONGEST_DETAILS:,}: it is sent to everyone who asks, so write data to files"
            )
        for key in ("steps", "version", "version_lag"):
            if not isinstance(plain.get(key), (int, type(None))):
                raise errors.JobError(
                    f"status() of {who} returned {key}={plain[key]!r}; it must be a whole number"
                )
        plain = json.loads(text)
        return cls(
            {key: plain[key] for key in _KNOWN if key in plain},
            {key: value for key, value in plain.items() if key not in _KNOWN},
        )


def _text(text: str) -> str:
    """Replaces what UTF-8 cannot represent, such as half a character of a broken path."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: Any) -> Any:
    return value.item() if getattr(value, "shape", None) == () else value
