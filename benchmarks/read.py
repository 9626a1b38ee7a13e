"""Reading transitions from Reverb into batches of 256: transitions per second.

Peer: TF-Agents' `ReverbReplayBuffer.as_dataset`. Limit: `reverb.TrajectoryDataset` on the items
that ours reads, 32 at a time, with nothing unpacked, mixed or cut into batches.
"""

from __future__ import annotations

import reverb

from actor_learner.replay import lane_replay
from benchmarks import harness, settings

BATCH_SIZE = 256
_ITEMS = 32


def rows(config: settings.Settings) -> list[harness.Row]:
    return [_row(config, lanes) for lanes in config.lanes]


def _row(config: settings.Settings, lanes: int) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours = settings.LaneStream(data_spec, lanes)
    peer = settings.PeerStream(data_spec)
    with settings.closing(ours, peer):
        ours.fill(max(200, config.transitions // lanes))
        peer.fill(config.transitions // 5)
        results = harness.alternate(
            {
                "ours": harness.rate(_reader(ours.dataset(BATCH_SIZE)), config.seconds),
                "peer": harness.rate(_reader(peer.dataset(BATCH_SIZE)), config.seconds),
                "limit": harness.rate(_bare_reader(ours), config.seconds),
            },
            config.repetitions,
        )
    return harness.row("read", f"{lanes} lanes, batch {BATCH_SIZE}", results)


def _reader(dataset):
    iterator = iter(dataset)

    def read() -> int:
        for _ in range(4):
            next(iterator)
        return 4 * BATCH_SIZE

    return read


def _bare_reader(stream: settings.LaneStream):
    layout = stream.replay.layout(stream.experience)
    signature = layout.signature()
    items = reverb.TrajectoryDataset(
        stream.server.address,
        lane_replay.TABLE,
        dtypes={name: spec.dtype for name, spec in signature.items()},
        shapes={name: spec.shape for name, spec in signature.items()},
        max_in_flight_samples_per_worker=_ITEMS,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=30_000,
    )
    iterator = iter(items.batch(_ITEMS, drop_remainder=True).prefetch(1))

    def read() -> int:
        next(iterator)
        return _ITEMS * layout.rows_per_item * layout.num_lanes

    return read
