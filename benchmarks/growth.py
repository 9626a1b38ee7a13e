"""How the cost of replay grows, to show where it stops being flat: transitions per second, ours.

By lanes (CartPole's step), by the size of the observation, and by the items in a full table. The
limit is the memory: how many observations of that size NumPy copies per second.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import harness, settings

BATCH_SIZE = 256
LANES = 16
_SIZED = ("floats", "image")


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes in config.many_lanes:
        yield from size_rows(config, f"{lanes} lanes", settings.vector_spec(4), lanes)
    for size in (4, 64, 1024):
        yield from size_rows(config, f"{size} floats", settings.vector_spec(size), LANES)
    yield from size_rows(config, "84x84x4 image", settings.image_spec(), LANES)
    for items in config.replay_items:
        yield from item_rows(config, items)


def size_rows(config: settings.Settings, case: str, data_spec, lanes: int) -> list[harness.Row]:
    size = data_spec.observation.shape.num_elements() * data_spec.observation.dtype.size
    # Of images a few thousand, not to fill the machine's memory.
    capacity = max(64 * lanes, int(min(100_000, 512e6 / size)))
    observations = settings.random_step(data_spec, 64, 0).observation
    copied = np.empty_like(observations)

    def copy() -> int:
        np.copyto(copied, observations)
        return len(observations)

    measures = (
        {"limit": harness.rate(copy, config.few_seconds / 4)} if case.endswith(_SIZED) else {}
    )
    stream = settings.LaneStream(data_spec, lanes, capacity=capacity)
    with settings.closing(stream):
        stream.fill(max(64, min(4_000, capacity) // lanes))
        results = _measure(config, stream, measures)
    return _as_rows(case, results)


def item_rows(config: settings.Settings, items: int) -> list[harness.Row]:
    """A table of one transition per item, the most items that transitions can make, full."""
    stream = settings.LaneStream(settings.vector_spec(4), 1, capacity=items, rows_per_item=1)
    steps = [settings.random_step(settings.vector_spec(4), 1, seed) for seed in range(4)]
    with settings.closing(stream):
        for index in range(items + 1):
            stream.observer(steps[index % len(steps)])
        stream.observer.flush()
        results = _measure(config, stream, {})
    return _as_rows(f"{items:,} items", results)


def _measure(config: settings.Settings, stream: settings.LaneStream, others: dict) -> dict:
    experience = stream.experience
    steps = [settings.random_step(experience.data_spec, experience.num_lanes, i) for i in range(4)]
    iterator = iter(stream.dataset(BATCH_SIZE))

    def write() -> int:
        for step in steps:
            stream.observer(step)
        return len(steps) * experience.num_lanes

    def read() -> int:
        next(iterator)
        return BATCH_SIZE

    measures = {
        "write": harness.rate(write, config.few_seconds),
        "read": harness.rate(read, config.few_seconds),
    }
    return harness.alternate({**measures, **others}, config.few_repetitions)


def _as_rows(case: str, results: dict[str, list[float]]) -> list[harness.Row]:
    limit = {"limit": results["limit"]} if "limit" in results else {}
    return [
        harness.row("growth", f"{what}, {case}", {"ours": results[what], **limit})
        for what in ("write", "read")
    ]
