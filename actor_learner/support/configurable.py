"""Registers our classes and functions with gin under their bare names.

TF-Agents registers `Actor`, `Learner`, `ReverbReplayBuffer`, ... of its own, and importing any part
of it imports all of these. A binding such as `Learner.triggers` would then be ambiguous. Gin lets a
selector without a module win over longer ones, so ours are registered without one:
`Learner.triggers` means ours. `learner.Learner.triggers` would mean theirs, and is refused
(`configuring.replaced`); their complete name is not.
"""

from __future__ import annotations

from typing import Callable, TypeVar

import gin

T = TypeVar("T", bound=Callable)


def register(fn_or_class: T) -> T:
    """Makes `fn_or_class` configurable as `<its name>.<its argument>` in gin files."""
    module = fn_or_class.__module__
    # gin prefixes the module's name unless there is none; its `module=` argument refuses "".
    fn_or_class.__module__ = None
    try:
        decorated = gin.configurable(fn_or_class)
    finally:
        fn_or_class.__module__ = module
    decorated.__module__ = module
    return decorated


def is_bound(parameter: str) -> bool:
    """Whether gin binds `Name.parameter`, whatever the value, in the scope of the caller."""
    try:
        gin.query_parameter(parameter)
    except ValueError:
        return False
    return True
