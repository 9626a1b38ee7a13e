"""`actor-learner help NAME`: the parameters of something a gin file can name. No TensorFlow."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from typing import Any

from actor_learner.configuring import catalog as catalog_lib
from actor_learner.configuring import modules, registrations
from actor_learner.support import errors

OK = 0
_WIDTH = 100


def add_parser(commands: Any) -> None:
    """Adds `help` to the commands of the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser("help", help="list the parameters of what a gin file can name")
    parser.add_argument("name", help="e.g. sac, Experiment, LaneReplay, my_module.MyTrigger")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    catalog = catalog_lib.Catalog()
    module = arguments.name.rpartition(".")[0]
    if module:
        catalog.add_import(module, is_from=False)  # A user's own, in the working directory.
    found = catalog.find(arguments.name)
    if not found:
        hint = catalog.suggest(arguments.name)
        if not hint and not module:
            hint = f"; something of your own is named with its module: my_module.{arguments.name}"
        raise errors.ConfigError(f"nothing that gin can name is called {arguments.name}{hint}")
    print("\n\n".join("\n".join(describe(one)) for one in found))
    return OK


def describe(configurable: registrations.Configurable) -> list[str]:
    """Lines that say what a configurable is, and each parameter with default and meaning."""
    if configurable.definition is None:
        return [f"{configurable.selector}: its source does not show what it takes"]
    module, node = configurable.definition
    docs = [ast.get_docstring(node) or ""]
    if isinstance(node, ast.ClassDef):
        inner = [i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == "__init__"]
        docs += [ast.get_docstring(i) or "" for i in inner]
    head, *_ = docs[0].split("\n\n")
    meanings: dict[str, str] = {}
    for doc in docs:
        meanings.update(_arguments(doc))
    lines = [f"{configurable.selector}: {' '.join(head.split())}", f"  in {module.path}", ""]
    for name, parameter in configurable.signature.parameters.items():
        if name in configurable.denied:
            continue
        default = f" = {_value(module, parameter.default)}" if parameter.default else ", no default"
        lines.append(f"  {configurable.selector}.{name}{default}")
        lines += textwrap.wrap(
            meanings.get(name, ""), _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    if configurable.signature.open:
        lines.append("  and further parameters, which the source does not show")
    return lines


def _value(module: modules.Module, expression: ast.expr) -> str:
    """The source of an expression; of a constant, which `module` may import, that of its value."""
    owner, _, name = (module.dotted(expression) or "").rpartition(".")
    if owner:
        spec = modules.locate(owner)
        path = spec and modules.source_path(spec)
        module = modules.parse(owner, path) if path else module
    for statement in module.top_level():
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    return ast.unparse(statement.value)
    return ast.unparse(expression)


def _arguments(doc: str) -> dict[str, str]:
    """What the `Args:` of a docstring say of each parameter."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(doc), re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    name = None
    for line in section.group(1).splitlines() if section else ():
        begins = re.match(r"  (\*{0,2}\w+): (.*)", line)
        if begins:
            name = begins.group(1)
            found[name] = begins.group(2)
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
