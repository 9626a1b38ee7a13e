"""Reading transitions from Reverb into batches of 256: transitions per second.

Peer: TF-Agents' `ReverbReplayBuffer.as_dataset`. Limit: `reverb.TrajectoryDataset` on the items
that ours reads, 32 or a batch at a time, with nothing unpacked, mixed or cut into batches.

The first rows are `LaneReplay`'s. Items of prioritized and sequence replay are of one lane, so that
reading them is the same for any number. An unroll can be read once: a full queue is read until it
is empty, while the peer reads the same items again and again, which spares it nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Callable

import reverb

from benchmarks import harness, settings, streams

BATCH_SIZE = 256
_ITEMS = 32
_KIND_LANES = 8


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes in config.lanes:
        yield _row(config, lanes)
    for kind in (streams.PRIORITIZED, streams.SEQUENCES):
        yield _kind_row(config, kind)
    for lanes in config.lanes:
        yield _unroll_row(config, lanes)


def _row(config: settings.Settings, lanes: int) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours = settings.LaneStream(data_spec, lanes)
    peer = settings.PeerStream(data_spec)
    with settings.closing(ours, peer):
        ours.fill(max(200, config.transitions // lanes))
        peer.fill(config.transitions // 5)
        layout = ours.replay.layout(ours.experience)
        per_item = layout.rows_per_item * layout.num_lanes
        results = harness.alternate(
            {
                "ours": harness.rate(_reader(ours.dataset(BATCH_SIZE)), config.seconds),
                "peer": harness.rate(_reader(peer.dataset(BATCH_SIZE)), config.seconds),
                "limit": harness.rate(_bare_reader(ours, per_item, _ITEMS), config.seconds),
            },
            config.repetitions,
        )
    return harness.row("read", f"{lanes} lanes, batch {BATCH_SIZE}", results)


def _kind_row(config: settings.Settings, kind: streams.Kind) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours = streams.Stream(kind.build(streams.CAPACITY), data_spec, _KIND_LANES)
    peer = _peer(data_spec, kind)
    size = kind.batch_size
    with settings.closing(ours, peer):
        settings.fill(ours, max(200, config.transitions // _KIND_LANES))
        peer.fill(config.transitions // 5)
        read = _reader(ours.dataset(size), size * kind.steps)
        read_theirs = _reader(peer.dataset(size), size * kind.steps)
        read_bare = _bare_reader(ours, kind.steps, 2 * size)
        results = harness.alternate(
            {
                "ours": harness.rate(read, config.few_seconds),
                "peer": harness.rate(read_theirs, config.few_seconds),
                "limit": harness.rate(read_bare, config.few_seconds),
            },
            config.few_repetitions,
        )
    return harness.row("read", f"{kind.name}, batch {size}", results)


def _unroll_row(config: settings.Settings, lanes: int) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    kind = streams.UNROLLS
    batches = config.queued_batches
    ours = streams.Stream(kind.build(batches), data_spec, lanes)
    peer = _peer(data_spec, kind)
    per_batch = kind.batch_size * kind.steps
    with settings.closing(ours, peer):
        peer.fill(config.transitions // 5)
        iterator = iter(ours.dataset(kind.batch_size))
        step = ours.observed(settings.random_step(data_spec, lanes, 0))

        def read_all() -> float:
            """Not counted: the writing, and that one batch of many is fetched meanwhile."""
            for _ in range(batches * per_batch // lanes):
                ours.observer(step)
            ours.observer.flush()
            start = time.perf_counter()
            for _ in range(batches):
                next(iterator)
            return batches * per_batch / (time.perf_counter() - start)

        read_theirs = _reader(peer.dataset(kind.batch_size), per_batch)
        results = harness.alternate(
            {"ours": read_all, "peer": harness.rate(read_theirs, config.few_seconds)},
            config.few_repetitions,
        )
    return harness.row("read", f"{kind.name}, {lanes} lanes, batch {kind.batch_size}", results)


def _peer(data_spec, kind: streams.Kind) -> settings.PeerStream:
    return settings.PeerStream(
        data_spec, window=kind.window, stride=kind.stride, prioritized=kind.prioritized
    )


def _reader(dataset, transitions: int = BATCH_SIZE) -> Callable[[], int]:
    """Reads a batch, of so many transitions."""
    iterator = iter(dataset)

    def read() -> int:
        next(iterator)
        return transitions

    return read


def _bare_reader(stream: streams.Stream, transitions: int, in_flight: int) -> Callable[[], int]:
    """Reads items, each of so many transitions, as they are; `in_flight` of them on their way."""
    name = stream.replay.table_name
    signature = stream.server.client().server_info()[name].signature
    items = reverb.TrajectoryDataset(
        stream.server.address,
        name,
        dtypes={name: spec.dtype for name, spec in signature.items()},
        shapes={name: spec.shape for name, spec in signature.items()},
        max_in_flight_samples_per_worker=in_flight,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=30_000,
    )
    iterator = iter(items.batch(_ITEMS, drop_remainder=True).prefetch(1))

    def read() -> int:
        next(iterator)
        return _ITEMS * transitions

    return read
