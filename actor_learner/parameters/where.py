"""Conditions on stored versions, such as `win_rate > 0.6`; read, never executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any, Callable

from actor_learner.parameters import parameter_errors, versions

_MAX_CHARACTERS = 1_000
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_FORM = (
    "use names of metadata, version and tags, numbers, 'strings', comparisons "
    "(< <= > >= == != in), and, or, not and parentheses"
)

Condition = Callable[[versions.StoredVersion], bool]


def parse(text: str) -> Condition:
    """Reads a condition.

    Names stand for metadata; `version` is the version, `tags` its tags. A comparison with something
    that a version does not have is false, whatever the comparison.

    Returns:
      A function that says whether a version fulfils it. It raises
      `parameter_errors.ParameterError` where two values cannot be compared.

    Raises:
      parameter_errors.ParameterError: If it is not a condition; says what is wrong with it.
    """
    if len(text) > _MAX_CHARACTERS:
        raise _wrong(text[:40] + "...", f"it has {len(text):,} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _check(tree, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _wrong(text, str(getattr(error, "msg", error) or "it is nested too deeply")) from None

    def fulfils(stored: versions.StoredVersion) -> bool:
        names = {**stored.metadata, "version": stored.version, "tags": stored.tags}
        return _holds(tree, names, text)

    return fulfils


def _check(node: ast.AST, text: str) -> None:
    """Raises unless all of a condition is of the kinds that are known here."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check(value, text)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check(node.operand, text)
    elif isinstance(node, ast.Compare):
        for operation in node.ops:
            if type(operation) not in _COMPARISONS:
                raise _wrong(text, f"{type(operation).__name__} is not one of the comparisons")
        for value in (node.left, *node.comparators):
            _check_value(value, text)
    else:
        raise _wrong(text, f"{ast.unparse(node)!r} is not a comparison")


def _check_value(node: ast.AST, text: str) -> None:
    is_negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if is_negative else node
    if isinstance(inner, ast.Constant):
        kinds = (int, float) if is_negative else (int, float, str, bool)
        if isinstance(inner.value, kinds):
            return
    elif isinstance(inner, ast.Name) and not is_negative:
        return
    raise _wrong(text, f"{ast.unparse(node)!r} is not a name, a number or a string")


def _holds(node: Any, names: Mapping[str, Any], text: str) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_holds(value, names, text) for value in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand, names, text)
    values = [_value(each, names) for each in (node.left, *node.comparators)]
    if any(value is None for value in values):
        return False
    try:
        return all(
            _COMPARISONS[type(operation)](one, other)
            for operation, one, other in zip(node.ops, values, values[1:])
        )
    except TypeError as error:
        raise _wrong(text, f"version {names['version']} cannot be compared: {error}") from error


def _value(node: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -node.operand.value
    return names.get(node.id)


def _wrong(text: str, why: str) -> parameter_errors.ParameterError:
    return parameter_errors.ParameterError(f"{text!r} is not a condition: {why}; {_FORM}")
