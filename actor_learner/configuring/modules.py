"""Python modules as text: located and parsed, never executed."""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator
from typing import Union

Definition = Union[ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef]


def search_path() -> list[str]:
    """Where a gin file's imports are looked for: Python's path, then the working directory."""
    directory = os.getcwd()
    known = directory in sys.path or "" in sys.path
    return list(sys.path) if known else [*sys.path, directory]


def locate(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of module `name`, or None; runs no code of the module or of its packages."""
    top, *rest = name.split(".")
    spec = importlib.machinery.PathFinder.find_spec(top, search_path())
    if spec is None:
        try:
            # Built-in modules and editable installs come from other finders; asked for a
            # top-level name they run nothing either.
            spec = importlib.util.find_spec(top)
        except ValueError:  # Such as `__main__`, which has no spec.
            return None
    for depth, _ in enumerate(rest, start=2):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(
            ".".join(name.split(".")[:depth]), list(spec.submodule_search_locations)
        )
    return spec


def siblings(name: str) -> list[str]:
    """Names of modules that exist where `name` was looked for, to suggest one of them."""
    parent, _, _ = name.rpartition(".")
    if not parent:
        return [module.name for module in pkgutil.iter_modules([os.getcwd()])]
    spec = locate(parent)
    if spec is None or spec.submodule_search_locations is None:
        return []
    found = pkgutil.iter_modules(list(spec.submodule_search_locations))
    return [f"{parent}.{module.name}" for module in found]


def source_path(spec: importlib.machinery.ModuleSpec) -> str | None:
    """The path of a module's Python source; None for compiled modules and namespace packages."""
    return spec.origin if spec.origin and spec.origin.endswith(".py") else None


def files_below(spec: importlib.machinery.ModuleSpec) -> Iterator[tuple[str, str]]:
    """The (module name, path) of every source file of a package, tests excepted."""
    if spec.submodule_search_locations is None:
        path = source_path(spec)
        if path:
            yield spec.name, path
        return
    for location in spec.submodule_search_locations:
        for folder, folders, names in os.walk(location):
            folders[:] = sorted(f for f in folders if f not in ("__pycache__", "gin_files"))
            inside = os.path.relpath(folder, location)
            parts = [spec.name] + ([] if inside == os.curdir else inside.split(os.sep))
            for name in sorted(names):
                stem, suffix = os.path.splitext(name)
                if suffix == ".py" and not stem.endswith("_test"):
                    own = parts if stem == "__init__" else [*parts, stem]
                    yield ".".join(own), os.path.join(folder, name)


class Module:
    """One parsed source file.

    Attributes:
      name: Its dotted name.
      path: Its file.
      definitions: Its top-level classes and functions; those under `if` and `try` included.
      imports: The dotted name behind every name it imports at top level.
      aliases: What is assigned to its top-level names.
    """

    def __init__(self, name: str, path: str):
        """Raises SyntaxError when the file is not valid Python."""
        self.name = name
        self.path = path
        with open(path, "rb") as file:
            self.tree = ast.parse(file.read(), path)
        self.definitions: dict[str, Definition] = {}
        self.imports: dict[str, str] = {}
        self.aliases: dict[str, ast.expr] = {}
        for node in self.top_level():
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                if isinstance(node.targets[0], ast.Name):
                    self.aliases[node.targets[0].id] = node.value
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    # `import a.b` binds `a`; `import a.b as c` binds `a.b`.
                    bound = alias.name if alias.asname else alias.name.split(".")[0]
                    self.imports[alias.asname or bound] = bound
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (
                        f"{self._absolute(node)}.{alias.name}"
                    )

    def top_level(self) -> Iterator[ast.stmt]:
        """Every statement that runs when the module is imported."""
        pending = list(self.tree.body)
        while pending:
            node = pending.pop(0)
            yield node
            for block in ("body", "orelse", "finalbody"):
                if isinstance(node, (ast.If, ast.Try, ast.With)):
                    pending.extend(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                pending.extend(handler.body)

    def imported_modules(self) -> list[str]:
        """The dotted names this module imports: modules, or modules and names within them."""
        found = []
        for node in self.top_level():
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        return found

    def dotted(self, node: ast.expr | None) -> str | None:
        """The full dotted name an expression such as `gin.configurable` stands for, or None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.imports.get(node.id)
        if root is None:
            root = f"{self.name}.{node.id}" if node.id in self.definitions else node.id
        return ".".join([root, *reversed(parts)])

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = os.path.basename(self.path) == "__init__.py"
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
        return ".".join([*parts, node.module] if node.module else parts)


@functools.cache
def _parse(name: str, path: str, stamp: tuple[int, int]) -> Module:
    return Module(name, path)


def parse(name: str, path: str) -> Module:
    """The parsed file, remembered until it changes. Raises SyntaxError."""
    status = os.stat(path)
    return _parse(name, path, (status.st_mtime_ns, status.st_size))


def resolve(dotted: str, depth: int = 6) -> tuple[Module, Definition] | None:
    """The definition behind a dotted name, through re-exports; None when it is not plain source."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        spec = locate(".".join(parts[:length]))
        path = source_path(spec) if spec else None
        if spec is None or path is None:
            continue
        try:
            module = parse(spec.name, path)
        except SyntaxError:
            return None
        head, rest = parts[length], parts[length + 1 :]
        if head in module.definitions and not rest:
            return module, module.definitions[head]
        if head in module.imports and depth:
            return resolve(".".join([module.imports[head], *rest]), depth - 1)
        return None
    return None
