"""Training from Reverb: train steps per second.

Ours: `Learner.run(iterations=100)` on the lane-batched stream. Peer: TF-Agents' `Learner`, called
the same way, on its own replay buffer; its DQN is its own `DdqnAgent`, which trains just as ours
does, while SAC is the same agent in both. Limit: `train` of our agent in a graph loop on one fixed
batch, without any input. Lanes are those of the actor that wrote: the more, the more transitions an
item of ours holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Callable

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.train import learner as peer_learner

from actor_learner.learning import learner
from benchmarks import harness, settings


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes in config.lanes:
        yield _row(config, "DQN 64x64, batch 64", lanes, _dqn, settings.peer_cartpole_dqn, 64)
    for lanes in config.lanes:
        yield _row(config, "SAC 256x256, batch 256", lanes, _sac, _sac, 256)


def _dqn() -> tf_agent.TFAgent:
    return settings.cartpole_dqn().agent


def _sac() -> tf_agent.TFAgent:
    return settings.pendulum_sac().agent


def _row(
    config: settings.Settings,
    case: str,
    lanes: int,
    build: Callable[[], tf_agent.TFAgent],
    build_peer: Callable[[], tf_agent.TFAgent],
    batch_size: int,
) -> harness.Row:
    iterations = config.learn_iterations
    built, theirs, bare = build(), build_peer(), build()
    ours_stream = settings.LaneStream(built.collect_data_spec, lanes)
    peer_stream = settings.PeerStream(built.collect_data_spec)
    with settings.closing(ours_stream, peer_stream), tempfile.TemporaryDirectory() as directory:
        ours_stream.fill(max(200, config.transitions // lanes))
        peer_stream.fill(config.transitions // 5)
        ours = learner.Learner(
            f"{directory}/ours",
            built.train_step_counter,
            built,
            lambda: ours_stream.dataset(batch_size),
            checkpoint_interval=0,
        )
        peer = peer_learner.Learner(
            f"{directory}/peer",
            theirs.train_step_counter,
            theirs,
            lambda: peer_stream.dataset(batch_size),
            checkpoint_interval=-1,
        )
        batch, _ = next(iter(ours_stream.dataset(batch_size)))
        train = tf.autograph.experimental.do_not_convert(bare.train)

        @tf.function
        def loop(count):
            for _ in tf.range(count):
                train(batch)

        def run(callable_):
            def work() -> int:
                callable_()
                return iterations

            return work

        main = lanes == config.main_lanes
        seconds = config.seconds if main else config.few_seconds
        measures = {
            "ours": harness.rate(run(lambda: ours.run(iterations)), seconds),
            "peer": harness.rate(run(lambda: peer.run(iterations)), seconds),
            "limit": harness.rate(run(lambda: loop(tf.constant(iterations))), seconds),
        }
        results = harness.alternate(
            measures, config.repetitions if main else config.few_repetitions
        )
        ours.close()
    return harness.row("learn", f"{case}, {lanes} lanes", results)
