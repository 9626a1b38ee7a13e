"""What the errors of a name registry say."""

from __future__ import annotations

from collections.abc import Collection
from typing import Callable

from actor_learner.naming import entries

_MOST_NAMES_SHOWN = 12


def taken(who: str, name: str, place: str, holder: entries.Entry | None) -> str:
    """Why a name could not be added; `holder` is None if it went away at that very moment."""
    if holder is None:
        return (
            f"the name {name!r} in {place} was taken when {who} wanted to add it, and is free by "
            "now: try again"
        )
    end = "stays until it is deleted"
    if holder.ttl is not None:
        end = f"vanishes {holder.ttl:g} s after that one has stopped refreshing it"
    return (
        f"{who} cannot add the name {name!r} to {place}: {holder.owner} has it, with the value "
        f"{_short(holder.value)}, and it {end}. Stop that one, or use another name"
    )


def absent(who: str, name: str, place: str, verb: str) -> str:
    """Why a name could not be refreshed, changed or deleted: it is gone."""
    return (
        f"{who} cannot {verb} the name {name!r} in {place}: it is not there. It was never added, "
        "its ttl has run out, or somebody removed it"
    )


def foreign(name: str, place: str, verb: str, owner: str, holder: entries.Entry | None) -> str:
    """Why a name could not be refreshed, changed or deleted: it is another's."""
    return (
        f"{owner} cannot {verb} the name {name!r} in {place}: it belongs to "
        f"{holder.owner if holder else 'somebody else'}"
    )


def neighbours(name: str, find: Callable[[str], Collection[str]]) -> str:
    """Which names there are beneath the nearest parent of `name` that has any.

    Args:
      name: A name that is missing.
      find: Returns the names beneath a prefix.
    """
    parent = name.rpartition("/")[0]
    found = sorted(find(parent))
    while parent and not found:
        parent = parent.rpartition("/")[0]
        found = sorted(find(parent))
    if not found:
        return "the registry is empty"
    more = len(found) - _MOST_NAMES_SHOWN
    shown = ", ".join(found[:_MOST_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"beneath {parent!r} there are {shown}" if parent else f"there are {shown}"


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else f"{value[:57]}...")
