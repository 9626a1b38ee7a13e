"""The reference of everything that a gin file can bind, read from signatures and docstrings."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import griffe

_GROUPS = (
    ("The experiment", ("experiment", "evaluation_settings", "run_settings", "parts", "runs")),
    ("Agents", ("agents",)),
    ("Environments", ("environments",)),
    ("Replay", ("replay",)),
    ("Acting and learning", ("acting", "learning", "parameters", "inference")),
    ("Jobs", ("jobs", "launch")),
    ("Reporting and limits", ("reporting", "support")),
)
_INTRODUCTION = """\
# Bindings

Everything that a gin file can bind, made from the signatures and docstrings of the code.
`dqn.gamma = 0.95` in a gin file, or `--gin_param='dqn.gamma = 0.95'` on the command line, sets
one. A parameter without a default has to be bound, or is given by the run. [Gin in one
page](../howto/gin.md) explains the syntax.
"""


def page(root: pathlib.Path) -> str:
    """The page, as Markdown."""
    package = griffe.load("actor_learner", search_paths=[root], docstring_parser="google")
    found = sorted(configurables(package), key=lambda item: item.name.lower())
    grouped: set[str] = set()
    parts = [_INTRODUCTION]
    for title, rooms in _GROUPS:
        here = [item for item in found if _room(item) in rooms]
        grouped.update(item.path for item in here)
        parts += [f"## {title}\n", *(_section(item) for item in here)]
    rest = [item for item in found if item.path not in grouped]
    if rest:
        parts += ["## Other\n", *(_section(item) for item in rest)]
    return "\n".join(parts)


def configurables(package: griffe.Module) -> Iterator[griffe.Class | griffe.Function]:
    """All classes and functions of a package that are registered with gin."""
    for module in [package, *_modules(package)]:
        for member in module.members.values():
            if not member.is_alias and (member.is_class or member.is_function):
                if any(_registers(decorator) for decorator in member.decorators):
                    yield member


def _modules(package: griffe.Module) -> Iterator[griffe.Module]:
    for module in package.modules.values():
        if not module.is_alias:
            yield module
            yield from _modules(module)


def _registers(decorator: griffe.Decorator) -> bool:
    name = str(decorator.value).split("(")[0]
    return name in ("configurable.register", "gin.configurable", "gin.register")


def _room(item: griffe.Object) -> str:
    return item.path.split(".")[1]


def _name(item: griffe.Object) -> str:
    """As gin files write it; suites are named with their module, since all are called `load`."""
    return f"{item.path.split('.')[-2]}.{item.name}" if item.name == "load" else item.name


def _section(item: griffe.Class | griffe.Function) -> str:
    constructor = item.members.get("__init__") if item.is_class else None
    documented = [part for part in (item, constructor) if part is not None and part.docstring]
    sections = [section for part in documented for section in part.docstring.parsed]
    text = [
        section.value for section in sections if section.kind is griffe.DocstringSectionKind.text
    ]
    meanings = {
        parameter.name: parameter.description
        for section in sections
        if section.kind is griffe.DocstringSectionKind.parameters
        for parameter in section.value
    }
    lines = [f"### {_name(item)}\n", text[0] if text else "", ""]
    rows = [
        f"| `{given.name}` | {_default(given, item)} | {_cell(meanings.get(given.name, ''))} |"
        for given in _parameters(item)
    ]
    if rows:
        lines += ["| parameter | default | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join([*lines, f"<small>`{item.path}`</small>\n"])


def _parameters(item: griffe.Class | griffe.Function) -> list[griffe.Parameter]:
    function = item
    if item.is_class:
        function = item.members.get("__init__")
        if function is None:
            return []
    starred = (griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword)
    return [
        parameter
        for parameter in function.parameters
        if parameter.name not in ("self", "cls", "world") and parameter.kind not in starred
    ]


def _default(parameter: griffe.Parameter, owner: griffe.Object) -> str:
    """The default as it is written; of a constant of ours its value."""
    if parameter.default is None:
        return ""
    value: object = parameter.default
    if isinstance(value, (griffe.ExprName, griffe.ExprAttribute)):
        try:
            constant = owner.modules_collection[value.canonical_path]
        except KeyError:  # Of another package.
            constant = None
        if constant is not None and constant.is_attribute:
            value = constant.value
    return f"`{_cell(str(value))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
