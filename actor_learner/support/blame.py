"""Finds the line of a user's own code that an error comes from."""

from __future__ import annotations

import pathlib
import sysconfig
import traceback

from actor_learner.support import errors

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(
    pathlib.Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib")
)


def place(error: BaseException) -> str | None:
    """`my_env.py:12, in step`: the innermost line outside of this package and of libraries.

    Looks at the first of the errors that led to `error`. None if no such line took part.
    """
    cause = root(error)
    frames = traceback.extract_tb(cause.__traceback__)
    for frame in reversed(frames):
        path = pathlib.Path(frame.filename)
        if not path.exists():
            if frame.filename.startswith(("<ipython", "/tmp/ipykernel")):
                return f"line {frame.lineno} of a cell, in {frame.name}"
            continue
        inside = path.resolve().parents
        if _PACKAGE not in inside and not any(library in inside for library in _LIBRARIES):
            return f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return None


def accused(error: BaseException) -> str | None:
    """As `place`, for an error that a user is told of; None where our own words say it all."""
    if isinstance(error, errors.ActorLearnerError) and error.__cause__ is None:
        return None
    return place(error)


def root(error: BaseException) -> BaseException:
    """The error that was raised first, of those that are chained by `raise ... from`."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
