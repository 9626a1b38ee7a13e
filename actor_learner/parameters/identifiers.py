"""Which names, tags and versions a parameter store takes."""

from __future__ import annotations

import re

from actor_learner.parameters import parameter_errors

LATEST = "latest"

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")


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
