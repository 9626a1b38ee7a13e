"""Tells `@name` from `@name()` where only one of them can be meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from typing import Any, Callable, NamedTuple

from actor_learner.configuring import literals, modules, signatures, statements

Bound = Mapping[str, Set[str]]
Find = Callable[[str], Any]  # The configurable behind a selector, or None.

_TAKES_ANYTHING = {"Any", "Type", "type", "object", "Callable"}


class _Family(NamedTuple):
    """A class with all it inherits from, as far as the source shows."""

    names: set[str]
    has_call: bool
    is_complete: bool


def wrong_forms(
    value: Any, parameter: signatures.Parameter, find: Find, bound: Bound
) -> Iterator[str]:
    """What is wrong with the references in a value that is bound to a parameter.

    Args:
      value: As read from the gin file.
      parameter: What it is bound to.
      find: Returns the `Configurable` of a selector, or None.
      bound: By complete selector, the parameters that gin binds, in whatever scope.
    """
    if parameter.annotation is not None:
        yield from _within(value, parameter.annotation, parameter.module, find, bound)


def _within(
    value: Any, node: ast.expr | None, module: modules.Module, find: Find, bound: Bound
) -> Iterator[str]:
    alternatives = list(_alternatives(node, module))
    if isinstance(value, (list, tuple)):
        for alternative in alternatives:
            arguments = literals.arguments_of(alternative)
            if literals.name_of(alternative) in {*literals.SEQUENCES, "Tuple", "tuple"}:
                for item in value if arguments else ():
                    yield from _within(item, arguments[0], module, find, bound)
    elif isinstance(value, statements.Reference):
        wrong = _wrong(value, {_last_name(a) for a in alternatives}, find, bound)
        if wrong:
            yield wrong


def _wrong(
    reference: statements.Reference, takes: set[str], find: Find, bound: Bound
) -> str | None:
    configurable = find(reference.selector)
    if configurable is None or configurable.definition is None or not takes:
        return None
    module, node = configurable.definition
    other = statements.Reference(
        reference.scope, reference.selector, evaluate=not reference.evaluate
    )
    parameters, of_it = configurable.signature.parameters, bound.get(configurable.selector, ())
    missing = [name for name, p in parameters.items() if p.required and name not in of_it]
    if reference.evaluate and takes == {"Callable"} and missing:
        names = " and ".join(repr(name) for name in missing)
        return (
            f"is {reference!r}, which calls {reference.selector} at once, without {names}: write "
            f"{other!r}, to have it called later"
        )
    if not isinstance(node, ast.ClassDef):
        return None
    family = _family(module, node)
    if reference.evaluate:
        if takes == {"Callable"} and family.is_complete and not family.has_call:
            return (
                f"is {reference!r}, one {reference.selector} made at once, but takes what makes "
                f"them: write {other!r}"
            )
        return None
    is_instance_meant = bool(takes & family.names) and not takes & _TAKES_ANYTHING
    if is_instance_meant or (takes == {"Callable"} and family.has_call):
        return f"is {reference!r}, the class itself, but takes one of its kind: write {other!r}"
    return None


def _alternatives(node: ast.expr | None, module: modules.Module) -> Iterator[ast.expr]:
    """What an annotation allows besides None."""
    node = literals.expanded(node, module)
    if node is None:
        return
    if literals.name_of(node) in ("Optional", "Union"):
        for argument in literals.arguments_of(node):
            yield from _alternatives(argument, module)
    elif literals.name_of(node) != "None":
        yield node


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _family(module: modules.Module, node: ast.ClassDef, depth: int = 8) -> _Family:
    names = {node.name}
    has_call = any(isinstance(i, ast.FunctionDef) and i.name == "__call__" for i in node.body)
    is_complete = True
    for base in node.bases:
        dotted = module.dotted(base.value if isinstance(base, ast.Subscript) else base)
        found = modules.resolve(dotted) if dotted and depth else None
        local = module.definitions.get(dotted[len(module.name) + 1 :]) if dotted else None
        if found is None and local is not None:
            found = (module, local)
        if found is None or not isinstance(found[1], ast.ClassDef):
            is_complete &= dotted in ("abc.ABC", "object", "typing.Protocol")
            continue
        inner = _family(found[0], found[1], depth - 1)
        names |= inner.names
        has_call |= inner.has_call
        is_complete &= inner.is_complete
    return _Family(names, has_call, is_complete)
