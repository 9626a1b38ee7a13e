"""Functions over nested arrays, compiled once from a structure so that no step traverses a nest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

Leaf = Callable[[Any], Any]


def compile_map(structure: Any, make_leaf: Callable[[Any], Leaf]) -> Callable[[Any], Any]:
    """Returns a function that rebuilds `structure` from a value of the same structure.

    Args:
      structure: A nest of mappings, named tuples, tuples and lists; anything else is a leaf.
      make_leaf: Called once per leaf of `structure`, now; what it returns is called with the
        corresponding leaf of every value later.

    Returns:
      `value -> nest`, with the containers of `structure` (not those of the value). It indexes the
      value by key or position, so a value with another structure raises KeyError, IndexError or
      TypeError, and entries the structure does not have are left out.
    """
    if isinstance(structure, Mapping):
        entries = [(key, compile_map(child, make_leaf)) for key, child in structure.items()]
        if type(structure) is dict:
            return lambda value: {key: convert(value[key]) for key, convert in entries}
        kind = type(structure)
        return lambda value: kind((key, convert(value[key])) for key, convert in entries)
    if isinstance(structure, (tuple, list)):
        converts = [compile_map(child, make_leaf) for child in structure]
        indexed = list(enumerate(converts))
        kind = type(structure)
        if hasattr(structure, "_fields"):
            return lambda value: kind(*[convert(value[i]) for i, convert in indexed])
        return lambda value: kind([convert(value[i]) for i, convert in indexed])
    return make_leaf(structure)


def children(structure: Any) -> list[tuple[Any, Any]] | None:
    """Key or position, and child, of each entry of a nest as in `compile_map`; None for a leaf."""
    if isinstance(structure, Mapping):
        return list(structure.items())
    if isinstance(structure, (tuple, list)):
        return list(enumerate(structure))
    return None
