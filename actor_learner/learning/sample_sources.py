"""Which Reverb tables a dataset samples, and what they say when no sample comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from actor_learner.replay.server import state
from actor_learner.support import errors

_SAMPLER_OPS = ("ReverbTrajectoryDataset", "ReverbTimestepDataset", "ReverbPatternDataset")
_LOOK_SECONDS = 5.0


class Source(NamedTuple):
    """A table that a dataset samples.

    Attributes:
      address: `host:port` of its server.
      table: Its name.
      ends: Whether the dataset ends by itself where the rate limiter lets no sample through.
    """

    address: str
    table: str
    ends: bool


class Look(NamedTuple):
    """What the tables of a dataset said at one moment.

    Attributes:
      text: Their state, for people.
      blocked: Whether it explains why no sample comes: a server does not answer, or a table cannot
        be sampled.
      hopeless: Whether nothing else will end the wait, either: a server does not answer, or the
        dataset has no timeout of its own for the table that cannot be sampled.
      samples: Items sampled so far from each table that answered; grows while samples flow.
    """

    text: str
    blocked: bool
    hopeless: bool
    samples: tuple[int, ...] = ()


def find(dataset: Any) -> list[Source]:
    """The tables that `dataset` samples, directly or in functions such as that of `interleave`.

    Nothing for one that was made outside of such a function and is used in it. TensorFlow keeps no
    public record of what a dataset is made of, so this takes what there is; the answer is good for
    messages and deadlines, not for more.
    """
    return list(dict.fromkeys(_walk(dataset)))


def look(sources: Iterable[Source]) -> Look:
    """Asks each table for its state; blocks for seconds where a server does not answer."""
    texts, samples, blocked, hopeless = [], [], False, False
    for address, table, ends in sources:
        try:
            now = state.table_state(reverb.Client(address), table, _LOOK_SECONDS)
        except errors.ReplayError as error:
            texts.append(f"table {table!r} at {address}: {error}")
            blocked = hopeless = True
            continue
        samples.append(now.samples)
        waits = now.blocked == "sampling"
        blocked, hopeless = blocked or waits, hopeless or (waits and not ends)
        told = f"{now.describe()}, at {address}, which answers"
        texts.append(told if waits else f"{told}; it can be sampled")
    return Look("; ".join(texts), blocked, hopeless, tuple(samples))


def _walk(dataset: Any) -> Iterator[Source]:
    address, table = getattr(dataset, "_server_address", None), getattr(dataset, "_table", None)
    if isinstance(address, str) and isinstance(table, str):
        yield Source(address, table, getattr(dataset, "_rate_limiter_timeout_ms", -1) >= 0)
    for function in _parts(dataset, "_functions"):
        graph = getattr(getattr(function, "function", None), "graph", None)
        if isinstance(graph, tf.Graph):
            yield from _in_graph(graph)
    for part in [*_parts(dataset, "_inputs"), *getattr(dataset, "_shards", ())]:
        yield from _walk(part)


def _parts(dataset: Any, method: str) -> list[Any]:
    call = getattr(dataset, method, None)
    return list(call()) if callable(call) else []


def _in_graph(graph: tf.Graph) -> Iterator[Source]:
    """The tables in a function of a dataset, and in the functions that this one calls."""
    for operation in graph.get_operations():
        if operation.type not in _SAMPLER_OPS:
            continue
        values = [tf.get_static_value(tensor) for tensor in operation.inputs[:2]]
        if all(value is not None for value in values):
            address, table = (np.asarray(value).item().decode() for value in values)
            yield Source(address, table, operation.get_attr("rate_limiter_timeout_ms") >= 0)
    for function in getattr(graph, "_functions", {}).values():
        inner = getattr(function, "graph", None)
        if isinstance(inner, tf.Graph) and inner is not graph:
            yield from _in_graph(inner)
