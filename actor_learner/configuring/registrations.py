"""Finds what a module registers with gin, by reading it."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from actor_learner.configuring import modules, signatures

_OURS = "actor_learner.support.configurable.register"
_DECORATORS = {"gin.configurable", "gin.register", "gin.config.configurable", "gin.config.register"}
_EXTERNAL = {"gin.external_configurable", "gin.config.external_configurable"}
_CONSTANT = {"gin.constant", "gin.config.constant"}
_ENUM = {"gin.constants_from_enum", "gin.config.constants_from_enum"}
_ALL = {_OURS} | _DECORATORS | _EXTERNAL | _CONSTANT | _ENUM


@dataclasses.dataclass(frozen=True)
class Configurable:
    """Something a gin file can bind parameters of or refer to.

    Attributes:
      selector: Its complete gin name.
      signature: What it accepts.
      allowed: If not None, the only parameters gin may bind.
      denied: Parameters gin may not bind.
      definition: Where it is defined, and how; None if only running it would tell.
    """

    selector: str
    signature: signatures.Signature
    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()
    definition: tuple[modules.Module, modules.Definition] | None = None


@dataclasses.dataclass
class Registrations:
    """What one module registers.

    Attributes:
      configurables: In the order written.
      constants: Complete names, used in gin files as `%name`.
      understood: False when it also registers something whose name only running it would tell.
    """

    configurables: list[Configurable] = dataclasses.field(default_factory=list)
    constants: list[str] = dataclasses.field(default_factory=list)
    understood: bool = True


class _Unreadable(Exception):
    """An argument of a registration is not a literal."""


def find(module: modules.Module) -> Registrations:
    """Everything `module` registers when it is imported."""
    found = Registrations()
    seen: set[ast.AST] = set()
    for node in module.top_level():
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            _add_definition(found, module, node, seen)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and node not in seen and module.dotted(node.func) in _ALL:
            top = any(_is_value_of(statement, node) for statement in module.top_level())
            try:
                if not top:
                    raise _Unreadable  # In a loop or a function: it may run any number of times.
                _add_call(found, module, node)
            except _Unreadable:
                found.understood = False
    return found


def _add_definition(
    found: Registrations, module: modules.Module, node: modules.Definition, seen: set[ast.AST]
) -> None:
    registered = None
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        seen.update([call] if call else [])
        dotted = module.dotted(call.func if call else decorator)
        try:
            if dotted == _OURS:
                registered = node.name
                made = Configurable(node.name, _signature(module, node), definition=(module, node))
                found.configurables.append(made)
            elif dotted in _DECORATORS:
                arguments = _arguments(call, ("name_or_fn", "module", "allowlist", "denylist"))
                made = _configurable(module.name, node.name, arguments, _signature(module, node))
                registered = made.selector
                found.configurables.append(dataclasses.replace(made, definition=(module, node)))
            elif dotted in _ENUM and isinstance(node, ast.ClassDef):
                prefix = _arguments(call, ("cls", "module")).get("module") or module.name
                found.constants += [
                    f"{prefix}.{node.name}.{item.targets[0].id}"
                    for item in node.body
                    if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name)
                ]
        except _Unreadable:
            found.understood = False
    if isinstance(node, ast.ClassDef):
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                _add_method(found, module, registered or f"{module.name}.{node.name}", item, seen)


def _add_method(
    found: Registrations,
    module: modules.Module,
    owner: str,
    node: ast.FunctionDef,
    seen: set[ast.AST],
) -> None:
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if module.dotted(call.func if call else decorator) in _DECORATORS:
            seen.update([call] if call else [])
            try:
                given = _arguments(call, ("name_or_fn", "module", "allowlist", "denylist"))
            except _Unreadable:
                found.understood = False
                continue
            # gin names it after its class only if that is registered too: accept both spellings.
            for prefix in (owner, module.name):
                found.configurables.append(
                    _configurable(prefix, node.name, given, signatures.OPAQUE)
                )


def _add_call(found: Registrations, module: modules.Module, call: ast.Call) -> None:
    dotted = module.dotted(call.func)
    if dotted in _CONSTANT:
        found.constants.append(_text(call.args[0] if call.args else None))
        return
    if dotted in _ENUM or not call.args:
        raise _Unreadable
    target = module.dotted(call.args[0])
    if target is None:
        raise _Unreadable
    defined = module.definitions.get(target[len(module.name) + 1 :])
    signature = _signature(module, defined) if defined else signatures.OPAQUE
    if dotted == _OURS:
        found.configurables.append(Configurable(target.rpartition(".")[2], signature))
        return
    external = ("fn_or_cls", "name", "module", "allowlist", "denylist")
    decorator = ("fn_or_cls", "module", "allowlist", "denylist")
    arguments = _arguments(call, external if dotted in _EXTERNAL else decorator)
    owner, _, name = target.rpartition(".")
    found.configurables.append(_configurable(owner or module.name, name, arguments, signature))


def _configurable(
    default_module: str, name: str, arguments: dict[str, Any], signature: signatures.Signature
) -> Configurable:
    name = arguments.get("name_or_fn") or arguments.get("name") or name
    # A name with dots brings its own module.
    owner = arguments.get("module") or (None if "." in name else default_module)
    allowed = arguments.get("allowlist")
    return Configurable(
        f"{owner}.{name}" if owner else name,
        signature,
        frozenset(allowed) if allowed else None,
        frozenset(arguments.get("denylist") or ()),
    )


def _signature(module: modules.Module, node: modules.Definition) -> signatures.Signature:
    return signatures.of(module, node, _ALL)


def _arguments(call: ast.Call | None, names: tuple[str, ...]) -> dict[str, Any]:
    """The literal arguments of a registration, by name; what it registers is left out."""
    found: dict[str, Any] = {}
    if call is None:
        return found
    given = [*zip(names, call.args), *((k.arg, k.value) for k in call.keywords)]
    for name, node in given:
        if name in ("fn_or_cls", "cls"):
            continue
        try:
            found[str(name)] = ast.literal_eval(node)
        except ValueError:
            raise _Unreadable from None
    return found


def _text(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _Unreadable


def _is_value_of(statement: ast.stmt, call: ast.Call) -> bool:
    return isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and statement.value is call
