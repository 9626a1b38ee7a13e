"""What a registry holds under a name, and which names, values and times to live it accepts."""

from __future__ import annotations

import enum
import math
import re
from typing import NamedTuple

from actor_learner.naming import name_errors

MAX_NAME_CHARACTERS = 240
MAX_VALUE_BYTES = 65_536
MIN_TTL = 0.01

# None of these characters means anything to a file system or in a pattern of Redis.
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:@+=-]*\Z")


class Entry(NamedTuple):
    """What is kept under a name.

    Attributes:
      value: What was added.
      owner: Token of the registry object that added it.
      ttl: Seconds until it expires after it was added or refreshed; None if it does not.
    """

    value: str
    owner: str
    ttl: float | None


class Outcome(enum.Enum):
    """How a request that only the owner may make has ended."""

    DONE = 1
    ABSENT = 2
    FOREIGN = 3


def is_entry(value: object, owner: object, ttl: object) -> bool:
    """Whether what a backend has read can be an entry, since anybody may write to its storage."""
    return (
        isinstance(value, str)
        and isinstance(owner, str)
        and (ttl is None or (isinstance(ttl, (int, float)) and not isinstance(ttl, bool)))
    )


def ownership(entry: Entry | None, owner: str) -> Outcome:
    """Returns the outcome of a request by `owner` about the entry that is there now."""
    if entry is None:
        return Outcome.ABSENT
    return Outcome.DONE if entry.owner == owner else Outcome.FOREIGN


def check_name(name: str) -> str:
    """Returns `name` if it is a path such as `run/jobs/actor/0`.

    Raises:
      name_errors.InvalidNameError: If it is not.
    """
    if not isinstance(name, str) or not name:
        raise name_errors.InvalidNameError(
            f"{name!r} cannot be a name: it must be a path such as 'run/jobs/actor/0'"
        )
    if len(name) > MAX_NAME_CHARACTERS:
        raise name_errors.InvalidNameError(
            f"the name {name!r} has {len(name)} characters; at most {MAX_NAME_CHARACTERS} are "
            "allowed"
        )
    for part in name.split("/"):
        if not _PART.match(part):
            raise name_errors.InvalidNameError(
                f"{name!r} cannot be a name because of its part {part!r}: parts are separated by "
                "single slashes and made of letters, digits and _ - . : @ + =; the first character "
                "is a letter, a digit, _ or -"
            )
    return name


def check_prefix(prefix: str) -> str:
    """Returns `prefix` if it is a name, or empty, which stands for all names."""
    return prefix if prefix == "" else check_name(prefix)


def is_beneath(name: str, prefix: str) -> bool:
    """Whether `name` is `prefix` or lies beneath it."""
    return not prefix or name == prefix or name.startswith(f"{prefix}/")


def check_value(name: str, value: str) -> str:
    """Returns `value` if it can be kept.

    Raises:
      name_errors.InvalidNameError: If it is not a string, or too long.
    """
    if not isinstance(value, str):
        raise name_errors.InvalidNameError(
            f"the value of {name!r} is a {type(value).__name__}; values are strings: write other "
            "things as JSON"
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise name_errors.InvalidNameError(
            f"the value of {name!r} is not text that can be written as UTF-8: {error}"
        ) from error
    if size > MAX_VALUE_BYTES:
        raise name_errors.InvalidNameError(
            f"the value of {name!r} has {size:,} bytes; at most {MAX_VALUE_BYTES:,} are allowed: "
            "registries hold addresses and states, not data"
        )
    return value


def check_ttl(name: str, ttl: float | None) -> float | None:
    """Returns `ttl` if it is None or a sensible number of seconds.

    Raises:
      name_errors.InvalidNameError: If it is not.
    """
    if ttl is not None and not (math.isfinite(ttl) and ttl >= MIN_TTL):
        raise name_errors.InvalidNameError(
            f"the ttl of {name!r} is {ttl} s; it must be None or at least {MIN_TTL} s"
        )
    return ttl
