"""Where the modules that gin files import are looked for, besides Python's own path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from actor_learner import config


def of(source: config.ConfigSource) -> list[str]:
    """The working directory, and those of the gin files: a trigger may stand beside its leaf."""
    directories = [os.path.dirname(config.find(file)) for file in source.gin_files]
    return list(dict.fromkeys([os.getcwd(), *directories]))


def extend(directories: Iterable[str]) -> None:
    """Appends what is missing to Python's path."""
    for directory in directories:
        if directory not in sys.path:
            sys.path.append(directory)
