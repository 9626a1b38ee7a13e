"""Checks of parts that a user gives in Python, with errors that say what to write instead."""

from __future__ import annotations

import functools
import inspect
import numbers
import types
from typing import Any

from actor_learner.configuring import suggestions
from actor_learner.support import errors


def require_maker(name: str, value: Any, makes: str, example: str) -> None:
    """Raises unless `value` is None or can be called to make something.

    Args:
      name: Of the argument: `Experiment.agent`.
      value: What was given.
      makes: What it has to make.
      example: What to write, in Python.

    Raises:
      errors.ConfigError: If it cannot be called, or is a `functools.partial` with arguments that
        its function does not take.
    """
    if value is None:
        return
    if isinstance(value, types.ModuleType):
        last = value.__name__.rpartition(".")[2]
        inside = f": its function is {value.__name__}.{last}" if hasattr(value, last) else ""
        raise errors.ConfigError(f"{name} is the module {value.__name__}{inside}")
    if not callable(value):
        raise errors.ConfigError(
            f"{name} is {_shown(value)}, but takes what makes {makes}, so that evaluations and "
            f"jobs can make their own: write {example}"
        )
    if isinstance(value, functools.partial):
        _check_partial(name, value)


def require_instance(name: str, value: Any, kind: type) -> None:
    """Raises unless `value` is None or a `kind`.

    Raises:
      errors.ConfigError: If it is something else, the class itself included.
    """
    if value is None or isinstance(value, kind):
        return
    if inspect.isclass(value) and issubclass(value, kind):
        raise errors.ConfigError(
            f"{name} is the class {value.__name__}: write {value.__name__}(), in a gin file "
            f"@{value.__name__}()"
        )
    raise errors.ConfigError(f"{name} is {_shown(value)}, but takes a {kind.__name__}")


def require_number(name: str, value: Any) -> None:
    """Raises unless `value` is None or a number.

    Raises:
      errors.ConfigError: If it is something else, text that looks like one included.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if value is not None and not is_number:
        raise errors.ConfigError(f"{name} is {_shown(value)}, but takes a number")


def _check_partial(name: str, partial: functools.partial) -> None:
    function = partial.func
    of = getattr(function, "__name__", repr(function))
    try:
        target = function.__init__ if inspect.isclass(function) else function
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return  # Written in C: calling it will tell.
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for given in partial.keywords:
        if given not in parameters:
            known = [other for other in parameters if other != "self"]
            hint = suggestions.did_you_mean(given, known) or f": it has {', '.join(known)}"
            raise errors.ConfigError(f"{name}: {of} has no parameter {given!r}{hint}")


def _shown(value: Any) -> str:
    if isinstance(value, (str, int, float)):
        return f"{value!r}"
    return f"a {type(value).__name__}"
