"""Executes a configuration: the real imports, the real bindings."""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from collections.abc import Sequence

import gin
from gin import config as gin_config

from actor_learner.configuring import checking, modules, program, replaced, statements
from actor_learner.support import errors

Key = tuple[str, str, str]  # Scope, complete selector, parameter.

# Where the bindings of gin's global configuration came from: as global as that is.
_origins: dict[Key, statements.Origin] = {}
_bindings: dict[Key, statements.Binding] = {}
# What a binding referred to before a later one replaced it: by complete selector, those two.
_replaced: dict[str, tuple[statements.Binding, statements.Binding]] = {}


def load(gin_files: Sequence[str], bindings: Sequence[str]) -> None:
    """Replaces gin's configuration by these files and bindings, importing what they name."""
    read = program.read(gin_files, bindings)
    if read.problems:
        raise errors.ConfigError(checking.report(read.problems))
    importlib.import_module("actor_learner.components")
    sys.path[:] = modules.search_path()
    importlib.invalidate_caches()
    _clear()
    for text, statement in read.steps:
        if isinstance(statement, statements.Binding) and statement.in_block:
            _remember(statement)  # Executed with the head of its block.
            continue
        try:
            gin.parse_config(_named(text.excerpt(statement), statement.origin))
        except Exception as error:  # gin re-raises whatever a module raises while imported.
            _clear()
            raise errors.ConfigError(f"{statement.origin}: {_reason(statement, error)}") from error
        if isinstance(statement, statements.Binding):
            _remember(statement)


def origin(key: Key) -> str:
    """Where a binding in gin's configuration was written."""
    return str(_origins.get(key, "bound in code"))


def origin_order(key: Key) -> tuple[str, int, str]:
    """Sorts bindings by where they were written."""
    return tuple(_origins.get(key, statements.Origin.of_binding(0, "")))


def replaced_references() -> dict[str, tuple[statements.Binding, statements.Binding]]:
    """What bindings referred to that later ones replace: by selector, the former and the latter."""
    return dict(_replaced)


def _clear() -> None:
    gin.clear_config()
    for known in (_origins, _bindings, _replaced):
        known.clear()


def _named(text: str, origin: statements.Origin) -> io.StringIO:
    stream = io.StringIO(text)
    if origin.in_file:
        stream.name = origin.file  # gin's own messages name the file by this.
    return stream


def _remember(binding: statements.Binding) -> None:
    try:
        key = gin_config.ParsedBindingKey.parse(
            (binding.scope, binding.selector, binding.parameter)
        )
    except (ValueError, KeyError):
        return  # With dynamic registration a selector has a meaning only inside its own file.
    refusal = replaced.refusal(binding.selector, key.complete_selector)
    if refusal:
        _clear()
        raise errors.ConfigError(f"{binding.origin}: {refusal}")
    before = _bindings.get(key.scope_selector_arg)
    if before is not None and before.origin != binding.origin:
        for selector in _references(before) - _references(binding):
            _replaced[selector] = (before, binding)
    _origins[key.scope_selector_arg] = binding.origin
    _bindings[key.scope_selector_arg] = binding


def _references(binding: statements.Binding) -> set[str]:
    """The complete selectors that a binding's value refers to."""
    found = set()
    for value in statements.values_within(binding.value):
        if isinstance(value, statements.Reference):
            matches = gin_config._REGISTRY.matching_selectors(value.selector)
            found.update(matches if len(matches) == 1 else ())
    return found


def _reason(statement: statements.Statement, error: Exception) -> str:
    # gin appends the place to the message; it stands in front of ours already.
    message = str(error).split("\n  In ")[0].strip(" \n\"'")
    if isinstance(statement, statements.Import):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"import of '{statement.module}' failed: {type(error).__name__}: {message} "
            f"({place.filename}:{place.lineno})"
        )
    return message
