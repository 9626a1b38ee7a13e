"""Finds, in the text of a configuration, the policies that are trained beside `main`."""

from __future__ import annotations

from typing import Any

from actor_learner.configuring import program as program_lib
from actor_learner.configuring import statements

_WORLD, _SPEC = "AgentWorld", "AgentSpec"


def trained(program: program_lib.Program) -> list[str]:
    """Names of the policies whose `AgentSpec.agent` is set, in the order of `AgentWorld.agents`."""
    values = _Values(program)
    world = values.of("", "Experiment", "environment")
    if not _refers_to(world, _WORLD):
        return []
    found: dict[str, None] = {}
    for spec in values.of(world.scope, _WORLD, "agents") or ():
        spec = values.resolved(spec)
        if _refers_to(spec, _SPEC) and values.of(spec.scope, _SPEC, "agent") is not None:
            name = values.of(spec.scope, _SPEC, "policy")
            if isinstance(name, str):
                found[name] = None
    return list(found)


class _Values:
    """The values that are bound last, by scope and parameter, as gin looks them up."""

    def __init__(self, program: program_lib.Program) -> None:
        self._macros: dict[str, Any] = {}
        self._bound: dict[tuple[str, str, str], Any] = {}
        for _, statement in program.steps:
            if not isinstance(statement, statements.Binding):
                continue
            if statement.is_macro:
                self._macros[statement.scope] = statement.value
            else:
                owner = statement.selector.rpartition(".")[2]
                self._bound[statement.scope, owner, statement.parameter] = statement.value

    def of(self, scope: str, owner: str, parameter: str) -> Any:
        """What a call of `owner` in a scope is given; None if nothing is bound."""
        parts = scope.split("/") if scope else []
        for length in range(len(parts), -1, -1):  # The innermost scope is the strongest.
            key = ("/".join(parts[:length]), owner, parameter)
            if key in self._bound:
                return self.resolved(self._bound[key])
        return None

    def resolved(self, value: Any) -> Any:
        """A value, or what the macro stands for."""
        seen = set()
        while isinstance(value, statements.Macro) and value.name not in seen:
            seen.add(value.name)
            value = self._macros.get(value.name)
        return value


def _refers_to(value: Any, owner: str) -> bool:
    return isinstance(value, statements.Reference) and value.selector.rpartition(".")[2] == owner
