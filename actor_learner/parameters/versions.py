"""Names, tags and versions of a parameter store, and what it says of each version."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

import numpy as np

from actor_learner.parameters import parameter_errors

LATEST = "latest"

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """A version that was read; the arrays are the reader's own.

    Attributes:
      version: The version.
      values: Arrays by name.
      tags: The tags that pointed to it.
      metadata: What was pushed with it.
      created: When it was pushed, in seconds since 1970.
    """

    version: int
    values: dict[str, np.ndarray]
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created: float


@dataclasses.dataclass(frozen=True)
class StoredVersion:
    """A version that is there.

    Attributes:
      version: The version.
      tags: The tags that point to it.
      metadata: What was pushed with it.
      created: When it was pushed, in seconds since 1970; None if it is damaged.
      size: Bytes of its file.
      path: The file.
      damage: What is wrong with it, as far as one sees without reading all of it; else None.
    """

    version: int
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created: float | None
    size: int
    path: pathlib.Path
    damage: str | None


def is_word(text: str) -> bool:
    """Whether `text` can be a name."""
    return bool(_WORD.match(text))


def check_name(name: str) -> str:
    """Returns `name` if parameters can have it.

    Raises:
      parameter_errors.ParameterError: If they cannot.
    """
    return _check_word("name", name)


def check_tag(tag: str) -> str:
    """Returns `tag` if it can be one.

    Raises:
      parameter_errors.ParameterError: If it cannot.
    """
    _check_word("tag", tag)
    if tag == LATEST or tag.isdigit():
        raise parameter_errors.ParameterError(
            f"{tag!r} cannot be a tag: 'latest' is always the last version pushed, and a number "
            "is a version"
        )
    return tag


def check_version(version: int) -> int:
    """Returns `version` as an int.

    Raises:
      parameter_errors.ParameterError: If it is not a whole number, or negative.
    """
    try:
        number = int(version)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or number != version:
        raise parameter_errors.ParameterError(
            f"a version is a train step, 0 or more; got {version!r}"
        )
    return number


def is_version(identifier: str | int) -> bool:
    """Whether an identifier stands for a version, not for a tag."""
    return not isinstance(identifier, str) or identifier.isdigit()


def _check_word(what: str, word: str) -> str:
    if not isinstance(word, str) or not is_word(word):
        raise parameter_errors.ParameterError(
            f"{word!r} cannot be a {what}: use up to 100 letters, digits and _ . -, beginning with "
            "a letter, a digit or _"
        )
    return word
