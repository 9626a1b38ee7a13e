"""What a function or class accepts, read from its source."""

from __future__ import annotations

import ast
import dataclasses

from actor_learner.configuring import modules

# Bases that bring no constructor arguments of their own.
_EMPTY_BASES = {"object", "abc.ABC", "typing.Generic", "typing.Protocol", "enum.Enum"}
# Decorators that leave a signature as it is.
_TRANSPARENT = {
    "abc.abstractmethod",
    "contextlib.contextmanager",
    "functools.lru_cache",
    "functools.wraps",
    "staticmethod",
    "typing.final",
    "typing.runtime_checkable",
}
_DATACLASS = {"dataclasses.dataclass", "dataclass"}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One named parameter; `module` is where its annotation's names mean something."""

    annotation: ast.expr | None
    default_is_none: bool
    module: modules.Module
    required: bool = False
    default: ast.expr | None = None


@dataclasses.dataclass(frozen=True)
class Signature:
    """The parameters that can be given by name.

    Attributes:
      parameters: In the order declared.
      open: Whether other names may be accepted too: `**kwargs`, or the source cannot tell.
      inherited: Whether nothing was declared, so that a base class decides.
    """

    parameters: dict[str, Parameter]
    open: bool = False
    inherited: bool = False


OPAQUE = Signature({}, open=True)


def of(module: modules.Module, node: modules.Definition, decorators: set) -> Signature:
    """The signature of a definition; `decorators` are those known to leave it as it is."""
    others = {
        module.dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list
    } - decorators
    if isinstance(node, ast.ClassDef):
        return _of_class(module, node, depth=8)
    if others - _TRANSPARENT:
        return OPAQUE
    return _of_function(module, node, bound=False)


def _of_function(
    module: modules.Module, node: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool
) -> Signature:
    arguments = node.args
    names = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(arguments.defaults))
    declared = list(zip(names, [*defaults, *arguments.defaults]))
    declared = declared[1:] if bound else declared
    # gin gives every argument by name, which positional-only ones refuse.
    declared = [pair for pair in declared if pair[0] not in arguments.posonlyargs]
    declared += zip(arguments.kwonlyargs, arguments.kw_defaults)
    parameters = {
        argument.arg: Parameter(
            argument.annotation, _is_none(default), module, default is None, default
        )
        for argument, default in declared
    }
    return Signature(parameters, open=arguments.kwarg is not None)


def _of_class(module: modules.Module, node: ast.ClassDef, depth: int) -> Signature:
    for constructor in ("__init__", "__new__"):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == constructor:
                return _of_function(module, item, bound=True)
    bases = [_of_base(module, base, depth) for base in node.bases]
    decorators = {
        module.dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list
    }
    if decorators & _DATACLASS:
        parameters: dict[str, Parameter] = {}
        for base in reversed(bases):
            parameters.update(base.parameters)
        parameters.update(_fields(module, node))
        return Signature(parameters, open=any(base.open for base in bases))
    if any(module.dotted(base) == "typing.NamedTuple" for base in node.bases):
        return Signature(_fields(module, node))
    if any(keyword.arg == "metaclass" for keyword in node.keywords):
        if any(module.dotted(k.value) != "abc.ABCMeta" for k in node.keywords):
            return OPAQUE
    for base in bases:
        if not base.inherited:
            return base
    return Signature({}, inherited=True)


def _of_base(module: modules.Module, base: ast.expr, depth: int) -> Signature:
    dotted = module.dotted(base.value if isinstance(base, ast.Subscript) else base)
    if dotted in _EMPTY_BASES:
        return Signature({}, inherited=True)
    if dotted is None or not depth:
        return OPAQUE
    # Only these are small enough to be worth reading; any other base may accept what it likes.
    if dotted.split(".")[0] not in (module.name.split(".")[0], "actor_learner", "tf_agents"):
        return OPAQUE
    name = dotted[len(module.name) + 1 :]
    if dotted == f"{module.name}.{name}" and name in module.definitions:
        found = (module, module.definitions[name])
    else:
        found = modules.resolve(dotted)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return OPAQUE
    return _of_class(found[0], found[1], depth - 1)


def _fields(module: modules.Module, node: ast.ClassDef) -> dict[str, Parameter]:
    """The constructor arguments a dataclass or named tuple makes from its annotated names."""
    found = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        annotation = item.annotation
        kind = module.dotted(
            annotation.value if isinstance(annotation, ast.Subscript) else annotation
        )
        if kind in ("typing.ClassVar", "dataclasses.KW_ONLY"):
            continue
        if isinstance(annotation, ast.Subscript) and kind == "dataclasses.InitVar":
            annotation = annotation.slice
        default = item.value
        if isinstance(default, ast.Call):
            given = {keyword.arg: keyword.value for keyword in default.keywords}
            init = given.get("init")
            if isinstance(init, ast.Constant) and init.value is False:
                continue
            default = given.get("default")
        required = item.value is None
        found[item.target.id] = Parameter(annotation, _is_none(default), module, required, default)
    return found


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
