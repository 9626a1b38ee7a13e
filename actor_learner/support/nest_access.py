"""Takes nests apart and puts them together by functions made once, which know their structure."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow as tf


def packer(structure: Any) -> Callable[[list[Any]], Any]:
    """A function that packs a list of leaves like `structure`, quicker than `tf.nest` does."""
    leaves = tf.nest.flatten(structure)
    if not leaves:
        return lambda _: structure
    return _pack(tf.nest.pack_sequence_as(structure, range(len(leaves))))


def getters(structure: Any) -> list[Callable[[Any], Any]]:
    """Functions that get each leaf out of a nest like `structure`, in `tf.nest`'s order.

    A function touches nothing but what leads to its leaf; other parts may be missing.
    """
    count = len(tf.nest.flatten(structure))
    found: dict[int, Callable[[Any], Any]] = {}
    _find(tf.nest.pack_sequence_as(structure, range(count)), [], found)
    return [found[number] for number in range(count)]


def _pack(node: Any) -> Callable[[list[Any]], Any]:
    if isinstance(node, int):
        return operator.itemgetter(node)
    # What is an attribute of a `tf.Module` is wrapped, which makes it slow to build.
    kind = type(getattr(node, "__wrapped__", node))
    if isinstance(node, Mapping):
        parts = [(key, _pack(part)) for key, part in node.items()]
        if kind is dict:
            return lambda leaves: {key: part(leaves) for key, part in parts}
        return lambda leaves: kind((key, part(leaves)) for key, part in parts)
    parts = [_pack(part) for part in node]
    if hasattr(node, "_fields"):
        return lambda leaves: kind(*[part(leaves) for part in parts])
    return lambda leaves: kind([part(leaves) for part in parts])


def _find(node: Any, path: list[Any], found: dict[int, Callable[[Any], Any]]) -> None:
    if isinstance(node, int):
        found[node] = _along(path)
    elif isinstance(node, Mapping):
        for key, part in node.items():
            _find(part, [*path, operator.itemgetter(key)], found)
    elif hasattr(node, "_fields"):
        for field in node._fields:
            _find(getattr(node, field), [*path, operator.attrgetter(field)], found)
    else:
        for position, part in enumerate(node):
            _find(part, [*path, operator.itemgetter(position)], found)


def _along(path: list[Any]) -> Callable[[Any], Any]:
    if len(path) == 1:
        return path[0]

    def get(nest: Any) -> Any:
        for step in path:
            nest = step(nest)
        return nest

    return get
