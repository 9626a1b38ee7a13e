"""Writing transitions to Reverb, nothing else: transitions per second."""

from __future__ import annotations

import tensorflow as tf

from benchmarks import harness, settings


def rows(config: settings.Settings) -> list[harness.Row]:
    return [_row(config, lanes) for lanes in config.lanes]


def _row(config: settings.Settings, lanes: int) -> harness.Row:
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours = settings.LaneStream(data_spec, lanes)
    peer = settings.PeerStream(data_spec)
    step = settings.random_step(data_spec, lanes, 0)
    single = tf.nest.map_structure(lambda leaf: leaf[0, ...], step)

    def write_ours() -> int:
        for _ in range(50):
            ours.observer(step)
        return 50 * lanes

    def write_peer() -> int:
        for _ in range(50):
            peer.observer(single)
        peer.observer.flush()
        return 50

    with settings.closing(ours, peer):
        results = harness.alternate(
            {
                "ours": harness.rate(write_ours, config.seconds),
                "peer": harness.rate(write_peer, config.seconds),
            },
            config.repetitions,
        )
    return harness.row("write", f"{lanes} lanes", results)
