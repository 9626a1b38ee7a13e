"""The configurables a gin file may name, found by reading source, so that nothing is imported."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator

from gin import selector_map

from actor_learner.configuring import modules, registrations, signatures, suggestions

_DEFINITION = re.compile(r"^[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]+(\w+)", re.MULTILINE)
_DECORATED = re.compile(
    r"@gin\.(?:configurable|register)\b[^@]*?^[ \t]*(?:class|def)[ \t]+(\w+)", re.MULTILINE
)
# Files with one of these may register under another name than a definition's.
_CALL = re.compile(r"(?:configurable|register|constant|constants_from_enum)\(")
# Packages that register nothing with gin and are far too large to be searched for it.
_WITHOUT_GIN = {
    *("absl", "gin", "gym", "gymnasium", "keras", "matplotlib", "numpy", "reverb", "rich"),
    *("scipy", "tensorboard", "tensorflow", "tensorflow_probability", "torch", "tree"),
    *getattr(sys, "stdlib_module_names", ()),
}


class _Package:
    """A package searched as text first; only files that may define a wanted name are parsed."""

    def __init__(self, spec: importlib.machinery.ModuleSpec):
        self._named: dict[str, list[tuple[str, str]]] = {}
        self._called: list[tuple[str, str]] = []
        self._decorated: set[str] = set()
        self._all: list[tuple[str, str]] = []
        for name, path in modules.files_below(spec):
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            if "configurable" not in text and "gin." not in text:
                continue
            self._all.append((name, path))
            for defined in set(_DEFINITION.findall(text)):
                self._named.setdefault(defined, []).append((name, path))
            if _CALL.search(text):
                self._called.append((name, path))
            self._decorated.update(_DECORATED.findall(text))

    def defining(self, name: str) -> list[tuple[str, str]]:
        """The files that have a class or function called `name`."""
        return self._named.get(name, [])

    def calling(self) -> list[tuple[str, str]]:
        """The files that may register something under a name of its own, or a constant."""
        return self._called

    def everything(self) -> list[tuple[str, str]]:
        return self._all

    def probable_names(self) -> set[str]:
        """The names of what seems to be registered: good enough to suggest one."""
        return self._decorated


class Catalog:
    """Looks up configurables and constants by the names gin files use.

    Our own package and the modules added with `add_import` are known from the start; TF-Agents,
    and other packages those modules import, are searched only for names found nowhere else.
    """

    def __init__(self) -> None:
        importlib.invalidate_caches()  # Files may have been written since the last look.
        self._configurables = selector_map.SelectorMap()
        self._constants = selector_map.SelectorMap()
        self._constants["gin.REQUIRED"] = True
        for builtin in ("gin.macro", "gin.constant", "gin.singleton"):
            self._configurables[builtin] = registrations.Configurable(builtin, signatures.OPAQUE)
        # The module that defines how we register has nothing registered itself.
        self._scanned: set[str] = {"actor_learner.support.configurable"}
        self._foreign: set[str] = {"tf_agents"}
        self._packages: dict[str, _Package | None] = {}
        self._own = "actor_learner"
        self.complete = True
        """Whether all names are known; if not, an unknown name may still exist when loading."""

    def add_import(self, module: str, is_from: bool) -> str | None:
        """Adds what importing `module` registers. Returns what is wrong with it, or None."""
        spec = modules.locate(module)
        if spec is None and is_from:
            # `from package import name` may also name something inside the package's module.
            module = module.rpartition(".")[0]
            spec = modules.locate(module)
        if spec is None:
            self.complete = False
            nearest = suggestions.did_you_mean(module, modules.siblings(module))
            where = f" in {os.getcwd()} or on Python's path" if not nearest else ""
            return f"there is no module '{module}'{where}{nearest}"
        if module.split(".")[0] in (self._own, "tf_agents"):
            return None
        return self._add_user_module(module)

    def find(self, selector: str) -> list[registrations.Configurable]:
        """What `selector` may mean: nothing, one configurable, or several if it is ambiguous."""
        return self._find(self._configurables, selector)

    def is_constant(self, name: str) -> bool:
        """Whether `%name` is a constant registered in Python."""
        return bool(self._find(self._constants, name))

    def constants(self) -> list[str]:
        return [name for name, _ in self._constants.items()]

    def suggest(self, selector: str) -> str:
        """`": did you mean 'x'?"` for a selector that `find` does not know, or nothing."""
        last = selector.rpartition(".")[2]
        own = self._package(self._own)
        for name, path in own.everything() if own else []:
            self._scan(name, path)
        known = {name.rpartition(".")[2] for name, _ in self._configurables.items()}
        for names in (known, *(package.probable_names() for package in self._searchable())):
            found = suggestions.did_you_mean(last, names)
            if found:
                return found
        return ""

    def _find(self, where: selector_map.SelectorMap, name: str) -> list:
        for candidates in self._candidates(name.rpartition(".")[2]):
            for module, path in candidates:
                self._scan(module, path)
            found = where.get_all_matches(name)
            if found:
                return found
        return []

    def _candidates(self, name: str) -> Iterator[list[tuple[str, str]]]:
        """Files that may register `name`, the likeliest first."""
        own = self._package(self._own)
        # Our names come first even where a user's module has the same: gin prefers short selectors.
        yield own.defining(name) if own else []
        yield own.calling() if own else []
        foreign = list(self._searchable())
        yield [file for package in foreign for file in package.defining(name)]
        yield [file for package in foreign for file in package.calling()]

    def _searchable(self) -> Iterator[_Package]:
        for top in sorted(self._foreign):
            package = self._package(top)
            if package:
                yield package

    def _package(self, top: str) -> _Package | None:
        if top not in self._packages:
            spec = modules.locate(top)
            self._packages[top] = _Package(spec) if spec else None
        return self._packages[top]

    def _add_user_module(self, name: str) -> str | None:
        """Reads a user's module and, since they run with it, all it imports of its package."""
        pending = [".".join(name.split(".")[:n]) for n in range(1, len(name.split(".")) + 1)]
        while pending:
            module_name = pending.pop()
            if module_name in self._scanned:
                continue
            spec = modules.locate(module_name)
            if spec is None:
                continue  # A name inside a module rather than a module.
            path = modules.source_path(spec)
            if path is None:
                self._scanned.add(module_name)
                # A namespace package holds no code; a compiled module may register anything.
                self.complete &= spec.origin in (None, "built-in", "frozen")
                continue
            problem = self._scan(module_name, path)
            if problem:
                self.complete = False
                return problem
            for imported in modules.parse(module_name, path).imported_modules():
                top = imported.split(".")[0]
                if top == name.split(".")[0]:
                    parts = imported.split(".")
                    pending += [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
                elif top not in _WITHOUT_GIN and top != self._own:
                    self._foreign.add(top)
        return None

    def _scan(self, name: str, path: str) -> str | None:
        if name in self._scanned:
            return None
        self._scanned.add(name)
        try:
            found = registrations.find(modules.parse(name, path))
        except SyntaxError as error:
            return f"module '{name}' is not valid Python: {error.msg} ({path}:{error.lineno})"
        for configurable in found.configurables:
            self._configurables[configurable.selector] = configurable
        for constant in found.constants:
            self._constants[constant] = True
        self.complete &= found.understood
        return None
