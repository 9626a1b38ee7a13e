"""Reading transitions from Reverb into batches of 256: transitions per second."""

from __future__ import annotations

from benchmarks import harness, settings

BATCH_SIZE = 256


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
