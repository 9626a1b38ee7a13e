"""Whether a literal from a gin file fits the annotation of the parameter it is bound to."""

from __future__ import annotations

import ast
from typing import Any

from actor_learner.configuring import modules, signatures, statements, suggestions

SEQUENCES = {"Sequence", "List", "Iterable", "Collection", "list", "MutableSequence"}
_MAPPINGS = {"Dict", "Mapping", "MutableMapping", "dict"}
_ANY = "anything"


def mismatch(value: Any, parameter: signatures.Parameter) -> str | None:
    """Why `value` cannot be given for `parameter`, or None.

    Only plain types are judged: int, float, bool, str, None, and Optional, Union, Literal,
    sequences, tuples, mappings and callables of them. Everything else fits, and so do references
    and macros wherever they stand.
    """
    if parameter.annotation is None or (value is None and parameter.default_is_none):
        return None
    if _fits(value, parameter.annotation, parameter.module):
        return None
    expected = _described(parameter.annotation, parameter.module)
    got = f"None, but takes {expected}" if value is None else f"{value!r}, but takes {expected}"
    return f"is {got}{_hint(value, parameter)}"


def _fits(value: Any, node: ast.expr, module: modules.Module, depth: int = 10) -> bool:
    if isinstance(value, (statements.Reference, statements.Macro)) or not depth:
        return True
    node = expanded(node, module)
    name, arguments = name_of(node), arguments_of(node)

    def fits(item: Any, argument: ast.expr) -> bool:
        return _fits(item, argument, module, depth - 1)

    if name == "None":
        return value is None
    if name in ("int", "float", "bool", "str"):
        accepted = {"int": int, "float": (int, float), "bool": bool, "str": str}[name]
        return isinstance(value, accepted) and (name == "bool" or not isinstance(value, bool))
    if name == "Optional":
        return value is None or any(fits(value, argument) for argument in arguments)
    if name == "Union":
        return any(fits(value, argument) for argument in arguments)
    if name == "Literal":
        choices = _choices(node)
        return choices is None or any(type(c) is type(value) and c == value for c in choices)
    if name == "Callable":
        return False
    if name in SEQUENCES:
        if not isinstance(value, (list, tuple)):
            return False
        return not arguments or all(fits(item, arguments[0]) for item in value)
    if name in ("Tuple", "tuple"):
        # gin users write a list or a tuple as they please.
        if not isinstance(value, (list, tuple)):
            return False
        if not arguments:
            return True
        if len(arguments) == 2 and _is_ellipsis(arguments[1]):
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if name in _MAPPINGS:
        if not isinstance(value, dict):
            return False
        return len(arguments) != 2 or all(
            fits(key, arguments[0]) and fits(item, arguments[1]) for key, item in value.items()
        )
    return True


def _hint(value: Any, parameter: signatures.Parameter) -> str:
    """What to write instead, where that is clear."""

    def fits(other: Any) -> bool:
        return parameter.annotation is not None and _fits(
            other, parameter.annotation, parameter.module
        )

    if isinstance(value, float) and value.is_integer() and fits(int(value)):
        return f": write {int(value):_}"
    if isinstance(value, str):
        try:
            meant = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            meant = value
        if not isinstance(meant, str) and fits(meant):
            return f": write {value} without quotes"
        choices = _choices(expanded(parameter.annotation, parameter.module))
        if choices:
            return suggestions.did_you_mean(value, [c for c in choices if isinstance(c, str)])
    if not isinstance(value, (list, tuple)) and fits([value]):
        return f": write [{value!r}]"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and fits(str(value)):
        return f": write '{value}'"
    expected = expanded(parameter.annotation, parameter.module)
    if expected and any(name_of(part) == "Callable" for part in ast.walk(expected)):
        return ": write @name"
    return ""


def expanded(node: ast.expr | None, module: modules.Module) -> ast.expr | None:
    """`node` with quotes, `X | Y` and the module's own aliases replaced by what they mean."""
    for _ in range(5):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        elif isinstance(node, ast.Name) and node.id in module.aliases:
            node = module.aliases[node.id]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            union = ast.Tuple([node.left, node.right], ast.Load())
            return ast.Subscript(ast.Name("Union", ast.Load()), union, ast.Load())
        else:
            break
    return node


def name_of(node: ast.AST | None) -> str:
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        return node.id
    # Of attributes only typing's own are meant: `np.int` is not `int`.
    if isinstance(node, ast.Attribute) and node.attr[:1].isupper():
        return node.attr
    return _ANY


def arguments_of(node: ast.expr | None) -> list:
    if not isinstance(node, ast.Subscript):
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _choices(node: ast.expr | None) -> list | None:
    if name_of(node) == "Optional":
        node = (arguments_of(node) or [None])[0]
    if name_of(node) != "Literal":
        return None
    found = [a.value for a in arguments_of(node) if isinstance(a, ast.Constant)]
    return found or None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _described(node: ast.expr | None, module: modules.Module) -> str:
    node = expanded(node, module)
    choices = _choices(node)
    if choices:
        return " or ".join(repr(choice) for choice in choices)
    return ast.unparse(node).replace("typing.", "") if node is not None else _ANY
