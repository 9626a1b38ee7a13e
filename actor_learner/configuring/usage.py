"""Finds bindings that had no effect, after the experiment is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gin import config as gin_config

from actor_learner.configuring import loading, statements
from actor_learner.support import errors

Calls = dict[tuple[str, str], dict[str, Any]]  # By scope and complete selector.


def check_all_used() -> None:
    """Raises a ConfigError that lists every binding no call has consumed."""
    lines = list(unused().values())
    if lines:
        raise errors.ConfigError("\n".join(lines))


def unused() -> dict[str, str]:
    """Place and reason of each binding that no call has consumed, by name, in order of place.

    Those that an override has orphaned are left out: see `orphaned`.
    """
    bound, called = _bound(), _called()
    apart = _orphans(bound, called)
    return {
        name: line for name, (key, line) in _unconsumed(bound, called).items() if key not in apart
    }


def drop_orphaned() -> list[str]:
    """Takes bindings out of the configuration that belong to what an override has replaced.

    `--gin_param='Experiment.agent = @td3'` leaves those of `sac` in a file without an effect. That
    is no mistake, and nothing is wrong if they are gone when the run is resumed.

    Returns:
      A line for each override, for the user to read.
    """
    bound, called = _bound(), _called()
    apart = _orphans(bound, called)
    lines: dict[str, list[str]] = {}
    for key in sorted(apart, key=loading.origin_order):
        scope, selector, parameter = key
        before, after = apart[key]
        why = f"{after.origin}: {after.key} is now {after.value!r} instead of {before.value!r}"
        lines.setdefault(why, []).append(f"{_short(selector)}.{parameter}")
        del gin_config._CONFIG[scope, selector][parameter]
        if not gin_config._CONFIG[scope, selector]:
            del gin_config._CONFIG[scope, selector]
    return [f"{why}; without effect: {', '.join(names)}" for why, names in lines.items()]


def _orphans(bound: Calls, called: Calls) -> dict[loading.Key, Any]:
    """Unused bindings of what was replaced, or of what only such bindings refer to."""
    unused_keys = {key for key, _ in _unconsumed(bound, called).values()}
    pending = list(loading.replaced_references().items())
    found: dict[loading.Key, Any] = {}
    while pending:
        wanted, override = pending.pop()
        for key in unused_keys - set(found):
            scope, selector, parameter = key
            if selector == wanted and not any(selector == other for _, other in called):
                found[key] = override
                for reference in _references(bound[scope, selector][parameter]):
                    pending.append((reference.config_key[1], override))
    return found


def _unconsumed(bound: Calls, called: Calls) -> dict[str, tuple[loading.Key, str]]:
    """By name, in order of place: key, and place and reason."""
    used = set(_used(bound, called))
    awaited = _awaited(bound, called, used)
    found = []
    for scope, selector in bound:
        if selector == statements.MACRO:
            continue  # A macro is used by bindings; those are judged.
        for parameter in bound[scope, selector]:
            key = (scope, selector, parameter)
            if key not in used and key not in awaited:
                line = _explain(key, bound, called)
                name = "/".join(filter(None, key))
                found.append((loading.origin_order(key), line, name, key))
    return {name: (key, line) for _, line, name, key in sorted(found)}


def _bound() -> Calls:
    # gin has public ways to write its configuration as text and to ask for one name, none to
    # list it; these three functions are the only places that look inside.
    return {key: dict(values) for key, values in gin_config._CONFIG.items()}


def _called() -> Calls:
    with gin_config._OPERATIVE_CONFIG_LOCK:
        return {key: dict(values) for key, values in gin_config._OPERATIVE_CONFIG.items()}


def _module(selector: str) -> str:
    return getattr(gin_config._REGISTRY[selector].wrapped, "__module__", None) or ""


def _used(bound: Calls, called: Calls) -> Iterator[loading.Key]:
    """The bindings whose value reached a call: of several scopes that apply, the innermost."""
    for (scope, selector), values in called.items():
        for parameter in values:
            for outer in reversed(_outer_scopes(scope)):
                if parameter in bound.get((outer, selector), {}):
                    yield outer, selector, parameter
                    break


def _awaited(bound: Calls, called: Calls, used: set[loading.Key]) -> set[loading.Key]:
    """Bindings of what was handed over as `@name` and may still be called later.

    What was called once is judged by its calls instead.
    """
    found: set[loading.Key] = set()
    pending = [bound[scope, selector][parameter] for scope, selector, parameter in used]
    seen = set()
    while pending:
        for reference in _references(pending.pop()):
            scope, selector = reference.config_key
            if (scope, selector) in seen or (scope, selector) in called:
                continue
            seen.add((scope, selector))
            for outer in _outer_scopes(scope):
                for parameter, value in bound.get((outer, selector), {}).items():
                    found.add((outer, selector, parameter))
                    pending.append(value)
    return found


def _references(value: Any) -> list[gin_config.ConfigurableReference]:
    return [
        item
        for item in statements.values_within(value)
        if isinstance(item, gin_config.ConfigurableReference)
    ]


def _outer_scopes(scope: str) -> list[str]:
    """`a/b` → "", "a", "a/b": the scopes whose bindings apply, outermost first."""
    parts = scope.split("/") if scope else []
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]


def _explain(key: loading.Key, bound: Calls, called: Calls) -> str:
    scope, selector, parameter = key
    name = _short(selector)
    shown = f"{scope + '/' if scope else ''}{name}.{parameter}"
    scopes = sorted(s for s, called_selector in called if called_selector == selector)
    applying = [s for s in scopes if scope in _outer_scopes(s)]
    if any(parameter in called[s, selector] for s in applying):
        reason = f"a binding in a narrower scope replaces it in every call of {name}"
    elif applying:
        reason = f"whoever calls {name} gives '{parameter}' itself"
    elif scopes:
        where = " and ".join(f"scope '{s}'" if s else "no scope" for s in scopes)
        reason = f"{name} is called in {where}"
    else:
        reason = f"this experiment builds {_alternatives(selector, called) or f'no {name}'}"
    return f"{loading.origin(key)}: {shown} is never used: {reason}"


def _alternatives(selector: str, called: Calls) -> str:
    """What was built from the same package instead; nothing if that would be guessing."""
    package = _module(selector).rpartition(".")[0]
    if not package:
        return ""
    others = {_short(other) for _, other in called if _module(other).rpartition(".")[0] == package}
    return " and ".join(sorted(others)) if len(others) <= 2 else ""


def _short(selector: str) -> str:
    return gin_config._REGISTRY.minimal_selector(selector)
