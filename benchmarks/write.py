"""Writing transitions to Reverb, nothing else: transitions per second.

Ours and the peer, TF-Agents' `ReverbAddTrajectoryObserver`, are given random steps and flush once,
at the end of a measurement, within the time that counts: everything counted has been confirmed.
Limit: a bare `reverb.StructuredWriter` that appends the same items, made before the clock starts.

The first rows are `LaneReplay`'s. Of the streams for priorities, sequences and unrolls the peer is
the same observer, with items of as many steps as ours, in a table of the same kind; no limit is
measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Callable

import reverb
import tensorflow as tf
import tree
from reverb import structured_writer

from actor_learner.replay.layouts import blocks
from actor_learner.replay.streams import lane_replay
from benchmarks import harness, settings, streams

_DISTINCT = 256
"""Steps that are written over and over: more than an item holds, so that none repeats in it."""
_CELLS = 16
_LIMIT_TIMEOUT_MS = 60_000


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes in config.lanes:
        yield _row(config, lanes)
    for kind in streams.KINDS:
        for lanes in config.lanes:
            yield _kind_row(config, kind, lanes)


def _row(config: settings.Settings, lanes: int) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours = settings.LaneStream(data_spec, lanes)
    bare = settings.LaneStream(data_spec, lanes)
    peer = settings.PeerStream(data_spec)
    steps = [settings.random_step(data_spec, lanes, seed) for seed in range(_DISTINCT)]
    singles = [tf.nest.map_structure(lambda leaf: leaf[0, ...], step) for step in steps]
    with settings.closing(ours, bare, peer):
        writer = _BareWriter(bare, steps)
        measures = {
            "ours": (_writes(ours.observer, steps, lanes), ours.observer.flush),
            "peer": (_writes(peer.observer, singles, 1), peer.observer.flush),
            "limit": (writer.write, writer.flush),
        }
        results = harness.alternate(
            {
                name: harness.rate(work, config.seconds, finish)
                for name, (work, finish) in measures.items()
            },
            config.repetitions,
        )
        writer.close()
    return harness.row("write", f"{lanes} lanes", results)


def _kind_row(config: settings.Settings, kind: streams.Kind, lanes: int) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours = streams.Stream(kind.build(streams.CAPACITY), data_spec, lanes)
    peer = settings.PeerStream(
        data_spec, window=kind.window, stride=kind.stride, prioritized=kind.prioritized
    )
    steps = [settings.random_step(data_spec, lanes, seed) for seed in range(_DISTINCT)]
    singles = [tf.nest.map_structure(lambda leaf: leaf[0, ...], step) for step in steps]
    observed = [ours.observed(step) for step in steps]
    with settings.closing(ours, peer):
        write_ours = harness.rate(
            _writes(ours.observer, observed, lanes), config.few_seconds, ours.observer.flush
        )
        write_theirs = harness.rate(
            _writes(peer.observer, singles, 1), config.few_seconds, peer.observer.flush
        )

        def write_and_empty() -> float:
            measured = write_ours()
            ours.empty()  # Or all rounds together would fill the machine's memory.
            return measured

        results = harness.alternate(
            {"ours": write_and_empty, "peer": write_theirs}, config.few_repetitions
        )
    return harness.row("write", f"{kind.name}, {lanes} lanes", results)


def _writes(observer: Callable, steps: list, lanes: int) -> Callable[[], int]:
    endless = itertools.cycle(steps)

    def write() -> int:
        for _ in range(50):
            observer(next(endless))
        return 50 * lanes

    return write


class _BareWriter:
    """Appends ready-made cells to a stream's table, as its observer would."""

    def __init__(self, stream: settings.LaneStream, steps: list) -> None:
        layout = stream.replay.layout(stream.experience)
        self._transitions = layout.rows_per_item * layout.num_lanes
        self._cells = _cells(layout, steps)
        reference = structured_writer.create_reference_step(dict.fromkeys(layout.columns))
        pattern = {name: reference[name][-layout.cells_per_item :] for name in layout.columns}
        config = structured_writer.create_config(pattern, lane_replay.TABLE)
        self._writer = reverb.Client(stream.server.address).structured_writer([config])

    def write(self) -> int:
        for cell in self._cells:
            self._writer.append(cell)
        # An unlimited writer fills the memory faster than it sends: as many may wait as with ours.
        self._writer.flush(50, _LIMIT_TIMEOUT_MS)
        return len(self._cells) * self._transitions

    def flush(self) -> None:
        self._writer.flush(0, _LIMIT_TIMEOUT_MS)

    def close(self) -> None:
        self._writer.end_episode(True, _LIMIT_TIMEOUT_MS)


def _cells(layout: blocks.BlockLayout, steps: list) -> list[dict]:
    """A few cells full of those steps."""
    endless = itertools.cycle(steps)
    cells = []
    for _ in range(_CELLS):
        filled = layout.empty_rows(layout.rows_per_item)
        for row in range(layout.rows_per_item):
            for field, leaf in zip(layout.observed.fields, tree.flatten(next(endless))):
                filled.fields[field.path][row] = leaf
        cells.append(filled.cell())
    return cells
