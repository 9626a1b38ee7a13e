"""What is wrong with a value, measured against its spec; each kind of fault is told once."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from tf_agents.specs import array_spec


class Findings:
    """Faults in the order they were first seen; a fault seen again is only counted."""

    def __init__(self):
        self._messages: dict[Hashable, str] = {}
        self._counts: dict[Hashable, int] = {}

    def add(self, key: Hashable, message: str) -> None:
        """Records a fault. `key` says which faults are the same; the first message is kept."""
        self._messages.setdefault(key, message)
        self._counts[key] = self._counts.get(key, 0) + 1

    def as_list(self) -> list[str]:
        """One line per distinct fault."""
        return [
            message if self._counts[key] == 1 else f"{message} (seen {self._counts[key]} times)"
            for key, message in self._messages.items()
        ]


def check_nest(spec: Any, value: Any, path: str, findings: Findings, *, where: str) -> None:
    """Adds every way in which `value` is not what `spec` says.

    Args:
      spec: An ArraySpec, or a mapping, tuple or list of these.
      value: What the environment gave.
      path: How to call the value in messages.
      findings: Where faults are added.
      where: When the value was given, such as "step 3".
    """
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping):
            findings.add((path, "type"), f"{path} is a {_kind(value)}, not a dict ({where})")
            return
        if set(value) != set(spec):
            findings.add(
                (path, "keys"),
                f"{path} has keys {sorted(map(str, value))}, the space has "
                f"{sorted(map(str, spec))} ({where})",
            )
        for key, child in spec.items():
            if key in value:
                check_nest(child, value[key], f"{path}[{key!r}]", findings, where=where)
    elif isinstance(spec, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(spec):
            findings.add(
                (path, "type"),
                f"{path} is {_kind(value)}, not a tuple of {len(spec)} values ({where})",
            )
            return
        for i, child in enumerate(spec):
            check_nest(child, value[i], f"{path}[{i}]", findings, where=where)
    else:
        _check_array(spec, value, path, findings, where)


def arrays_of(value: Any) -> list[np.ndarray]:
    """All arrays in a nest of mappings, tuples and lists."""
    if isinstance(value, Mapping):
        return [array for child in value.values() for array in arrays_of(child)]
    if isinstance(value, (tuple, list)):
        return [array for child in value for array in arrays_of(child)]
    return [value] if isinstance(value, np.ndarray) else []


def same(a: Any, b: Any) -> bool:
    """Whether two nests hold equal values; NaN equals NaN."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f" and b.dtype.kind == "f":
        return bool(np.array_equal(a, b, equal_nan=True))
    return bool(np.array_equal(a, b))


class Memory:
    """Remembers arrays to tell later whether somebody wrote into them."""

    def __init__(self, value: Any):
        self._arrays = arrays_of(value)
        self._copies = [array.copy() for array in self._arrays]

    def changed(self) -> bool:
        """Whether any of the arrays holds other values than when it was remembered."""
        return not same(self._arrays, self._copies)


def _check_array(
    spec: array_spec.ArraySpec, value: Any, path: str, findings: Findings, where: str
) -> None:
    scalar = spec.shape == () and isinstance(value, numbers.Number)
    if not scalar and not isinstance(value, (np.ndarray, np.generic)):
        findings.add(
            (path, "type"), f"{path} is a {_kind(value)}, not a NumPy array of {spec} ({where})"
        )
        return
    array = np.asarray(value)
    # Plain numbers, and integers of any width for a scalar, convert without loss or surprise.
    exact = isinstance(value, np.ndarray) or array.dtype.kind != spec.dtype.kind
    if exact and array.dtype != spec.dtype:
        findings.add(
            (path, "dtype", array.dtype),
            f"{path} has dtype {array.dtype}, its space says {spec.dtype} ({where})",
        )
    if array.shape != spec.shape:
        findings.add(
            (path, "shape", array.shape),
            f"{path} has shape {array.shape}, its space says {spec.shape} ({where})",
        )
        return
    if array.dtype.kind not in "fiub":
        return
    finite = np.isfinite(array)
    if not np.all(finite):
        bad = array[~finite].flat[0]
        findings.add((path, "finite"), f"{path} contains {bad} ({where})")
    if isinstance(spec, array_spec.BoundedArraySpec):
        with np.errstate(invalid="ignore"):
            outside = finite & ((array < spec.minimum) | (array > spec.maximum))
        if np.any(outside):
            low, high = (np.broadcast_to(b, array.shape)[outside].flat[0] for b in _bounds(spec))
            findings.add(
                (path, "bounds"),
                f"{path} contains {array[outside].flat[0]}, outside its bounds [{low}, {high}] "
                f"({where})",
            )


def _bounds(spec: array_spec.BoundedArraySpec) -> tuple[np.ndarray, np.ndarray]:
    return spec.minimum, spec.maximum


def _kind(value: Any) -> str:
    return type(value).__name__
