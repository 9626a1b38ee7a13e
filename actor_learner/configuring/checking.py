"""The check of a configuration before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actor_learner.configuring import (
    catalog,
    literals,
    program,
    reference_forms,
    registrations,
    renamed,
    replaced,
    statements,
    suggestions,
)
from actor_learner.support import errors


def check(gin_files: Sequence[str], bindings: Sequence[str]) -> None:
    """Raises one ConfigError with every problem that the text and the sources show."""
    found = _Check(program.read(gin_files, bindings)).problems()
    if found:
        raise errors.ConfigError(report(found))


def report(problems: Sequence[statements.Problem]) -> str:
    """All problems, one per line, in the order of their places; each once."""
    return "\n".join(str(problem) for problem in sorted(set(problems)))


class _Check:
    def __init__(self, read: program.Program):
        self._program = read
        self._problems: list[statements.Problem] = list(read.problems)
        self._catalog = catalog.Catalog()
        self._macros: dict[str, statements.Binding] = {}
        # By scope, complete selector and parameter: later bindings win.
        self._effective: dict[tuple[str, str, str], statements.Binding] = {}
        # Of files with dynamic registration, where a selector has another meaning.
        self._unchecked: list[statements.Binding] = []
        self._first: dict[tuple[str, str, str, str], statements.Origin] = {}

    def problems(self) -> list[statements.Problem]:
        for _, statement in self._program.steps:
            if isinstance(statement, statements.Binding) and statement.is_macro:
                self._macros[statement.scope] = statement
        self._check_imports()
        for text, statement in self._program.steps:
            if isinstance(statement, statements.Binding):
                self._check_binding(statement, checked=not text.dynamic_registration)
            elif isinstance(statement, statements.Block) and not text.dynamic_registration:
                self._find(statement.origin, statement.selector, statement.selector)
        self._check_references()
        if self._program.complete:
            # What is missing may stand in what could not be read.
            self._check_macros()
        return self._problems

    def _report(self, origin: statements.Origin, message: str) -> None:
        self._problems.append(statements.Problem(origin, message))

    def _check_imports(self) -> None:
        for _, statement in self._program.steps:
            if isinstance(statement, statements.Import):
                if statement.module.startswith("__gin__."):
                    continue
                wrong = self._catalog.add_import(statement.module, statement.is_from)
                if wrong:
                    self._report(statement.origin, wrong)

    def _check_binding(self, binding: statements.Binding, checked: bool) -> None:
        selector = binding.selector
        if checked:
            for value in statements.values_within(binding.value):
                if isinstance(value, statements.Reference):
                    self._find(binding.origin, value.selector, shown=repr(value))
            if not binding.is_macro:
                # The head of a block has been looked up, and reported, already.
                configurable = self._find(
                    binding.origin, selector, None if binding.in_block else selector
                )
                if configurable:
                    selector = configurable.selector
                    self._check_parameter(binding, configurable)
        else:
            self._unchecked.append(binding)
        key = (binding.scope, selector, binding.parameter)
        self._effective[key] = binding
        if binding.origin.in_file:
            first = self._first.setdefault((binding.origin.file, *key), binding.origin)
            if first != binding.origin:  # Equal when the file is included twice.
                self._report(
                    binding.origin,
                    f"{binding.key} is bound a second time: the first is on line {first.line}",
                )

    def _find(
        self, origin: statements.Origin, selector: str, shown: str | None
    ) -> registrations.Configurable | None:
        """The configurable meant; reports `shown`, and returns None, if there is not just one.

        Also if it is one of TF-Agents' where ours must be meant.
        """
        found = self._catalog.find(selector)
        if len(found) == 1:
            refusal = replaced.refusal(selector, found[0].selector)
            if refusal is None:
                return found[0]
            if shown:
                self._report(origin, refusal)
            return None
        if shown and found:
            names = " or ".join(sorted(configurable.selector for configurable in found))
            self._report(origin, f"ambiguous configurable '{shown}': write {names}")
        elif shown and self._catalog.complete:
            hint = self._catalog.suggest(selector) or ": import the module that registers it"
            self._report(origin, f"unknown configurable '{shown}'{hint}")
        return None

    def _check_parameter(
        self, binding: statements.Binding, configurable: registrations.Configurable
    ) -> None:
        name, of = binding.parameter, binding.selector
        signature = configurable.signature
        parameter = signature.parameters.get(name)
        allowed = configurable.allowed
        if name in configurable.denied or (allowed is not None and name not in allowed):
            self._report(binding.origin, f"parameter '{name}' of {of} cannot be set from gin")
        elif parameter is not None:
            value, through = self._resolved(binding.value)
            wrong = literals.mismatch(value, parameter)
            if wrong:
                self._report(binding.origin, f"{of}.{name} {wrong}{through}")
        elif not signature.open:
            names = [
                other
                for other in signature.parameters
                if other not in configurable.denied and (allowed is None or other in allowed)
            ]
            now = renamed.new_name(configurable.selector, name)
            hint = f": it is {now} now" if now else suggestions.did_you_mean(name, names)
            if not hint:
                hint = f": it has {', '.join(names)}" if names else ": it has none"
            self._report(binding.origin, f"unknown parameter '{name}' of {of}{hint}")

    def _resolved(self, value: Any, depth: int = 10) -> tuple[Any, str]:
        """`value` with macros replaced by their values, and where the last of them is set."""
        if not depth:
            return value, ""
        if isinstance(value, statements.Macro) and value.name in self._macros:
            definition = self._macros[value.name]
            inner, _ = self._resolved(definition.value, depth - 1)
            return inner, f" ({value!r} is set in {definition.origin})"
        if isinstance(value, (list, tuple)):
            items = [self._resolved(item, depth - 1) for item in value]
            return type(value)(i for i, _ in items), "".join(where for _, where in items[-1:])
        return value, ""

    def _check_references(self) -> None:
        """Refuses `@name()` and `@name` where the other one must be meant."""
        bound: dict[str, set[str]] = {}
        for _, selector, parameter in self._effective:
            bound.setdefault(selector, set()).add(parameter)
        for binding in self._effective.values():
            if binding in self._unchecked:
                continue
            configurable = None if binding.is_macro else self._known(binding.selector)
            parameter = configurable and configurable.signature.parameters.get(binding.parameter)
            if parameter:
                value, through = self._resolved(binding.value)
                for wrong in reference_forms.wrong_forms(value, parameter, self._known, bound):
                    self._report(
                        binding.origin, f"{binding.selector}.{binding.parameter} {wrong}{through}"
                    )

    def _known(self, selector: str) -> registrations.Configurable | None:
        found = self._catalog.find(selector)
        return found[0] if len(found) == 1 else None

    def _check_macros(self) -> None:
        used = set()
        for _, statement in self._program.steps:
            if isinstance(statement, statements.Binding):
                used.update(_macros_within(statement.value))
        for name, definition in self._macros.items():
            if not any(_covers(name, mention) for mention in used):
                self._report(
                    definition.origin,
                    f"macro '{name}' is never used{suggestions.did_you_mean(name, used, '%')}",
                )
        for binding in self._effective.values():
            for name in _macros_within(binding.value):
                if any(_covers(known, name) for known in self._macros):
                    continue
                if not self._catalog.is_constant(name) and self._catalog.complete:
                    known = [*self._macros, *self._catalog.constants()]
                    hint = suggestions.did_you_mean(name, known, "%")
                    hint = hint or f": add {name} = ... to a gin file"
                    self._report(binding.origin, f"undefined macro '%{name}'{hint}")


def _macros_within(value: Any) -> list[str]:
    return [v.name for v in statements.values_within(value) if isinstance(v, statements.Macro)]


def _covers(defined: str, mentioned: str) -> bool:
    # gin lets `%a/b` fall back to a macro named `a`.
    return mentioned == defined or mentioned.startswith(defined + "/")
