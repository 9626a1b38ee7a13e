"""Memory of the replay server: bytes per transition, where less is better.

Ours: one-step transitions of `LaneReplay`, or as the case says of `PrioritizedReplay` or
`SequenceReplay`. Peer: TF-Agents' `ReverbAddTrajectoryObserver`, one item of two steps per
transition, or of sequences one of 80 steps every 40; it writes one lane, whatever ours has. Limit:
the raw size of one step, so that `ours / limit` is what storing costs. Measured as growth of the
resident memory of a server in a process of its own, several times one after the other, with
observations of random numbers, which do not compress; real ones need less.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Callable

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.replay_buffers import reverb_utils as peer_observers

from actor_learner.replay.streams import lane_replay, sample_stream, sequence_replay
from benchmarks import harness, memory_server, settings, streams

CAPACITY = 100_000_000
VECTOR, IMAGE, FRAMES = "4 floats", "84x84x4 image", "84x84x4 image, frame_stack = 4"
PRIORITIZED, PRIORITIZED_IMAGE = f"PrioritizedReplay, {VECTOR}", f"PrioritizedReplay, {IMAGE}"
SEQUENCES, SEQUENCE_IMAGE, SEQUENCE_FRAMES = (
    f"{streams.SEQUENCES.name}, {what}" for what in (VECTOR, IMAGE, FRAMES)
)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is stored.

    Attributes:
      build: Makes our stream, with a capacity.
      image: Steps have images, not vectors.
      window: Steps of an item of the peer,
      stride: and between the beginnings of two of them.
    """

    build: Callable[[int], sample_stream.SampleStream]
    image: bool = False
    window: int = 2
    stride: int = 1

    def data_spec(self):
        return settings.image_spec() if self.image else settings.vector_spec(4)


def _frames(capacity: int) -> sample_stream.SampleStream:
    return lane_replay.LaneReplay(capacity, frame_stack=4)


def _sequence_frames(capacity: int) -> sample_stream.SampleStream:
    return sequence_replay.SequenceReplay(
        capacity,
        sequence_length=streams.SEQUENCE_LENGTH,
        period=streams.PERIOD,
        frame_stack=4,
    )


_SEQUENCE = {"window": streams.SEQUENCES.window, "stride": streams.SEQUENCES.stride}
CASES = {
    VECTOR: Case(lane_replay.LaneReplay),
    IMAGE: Case(lane_replay.LaneReplay, image=True),
    FRAMES: Case(_frames, image=True),
    PRIORITIZED: Case(streams.PRIORITIZED.build),
    PRIORITIZED_IMAGE: Case(streams.PRIORITIZED.build, image=True),
    SEQUENCES: Case(streams.SEQUENCES.build, **_SEQUENCE),
    SEQUENCE_IMAGE: Case(streams.SEQUENCES.build, image=True, **_SEQUENCE),
    SEQUENCE_FRAMES: Case(_sequence_frames, image=True, **_SEQUENCE),
}


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    lanes_of = {
        VECTOR: config.lanes,
        IMAGE: config.image_lanes,
        FRAMES: config.image_lanes,
        # Items of one lane: that other lanes change nothing shows in two numbers of them.
        PRIORITIZED: config.item_lanes,
        PRIORITIZED_IMAGE: config.image_lanes[:1],
        SEQUENCES: config.item_lanes,
        SEQUENCE_IMAGE: config.image_lanes[:1],
        SEQUENCE_FRAMES: config.image_lanes[:1],
    }
    theirs: dict[Case, list[float]] = {}  # By all that matters to the peer.
    for name, case in CASES.items():
        alike = dataclasses.replace(case, build=lane_replay.LaneReplay)
        for lanes in lanes_of[name]:
            if alike not in theirs:
                theirs[alike] = peer_bytes(config, name)
            results = {
                "ours": our_bytes(config, name, lanes),
                "peer": theirs[alike],
                "limit": [float(_raw_bytes(case))],
            }
            yield harness.row("memory", f"{name}, {lanes} lanes", results)


def our_stream(
    name: str, lanes: int
) -> tuple[sample_stream.SampleStream, sample_stream.Experience]:
    """The stream of a case, and what flows through it."""
    case = CASES[name]
    experience = sample_stream.Experience(case.data_spec(), lanes, n_step=1, gamma=0.99)
    return case.build(CAPACITY), experience


def our_bytes(config: settings.Settings, name: str, lanes: int) -> list[float]:
    """Bytes per transition that a server with our stream's table grows by, several times."""
    stream, experience = our_stream(name, lanes)
    case = CASES[name]
    with memory_server.running("ours", name, str(lanes)) as (address, pid):
        observer = stream.observer(experience, reverb.Client(address))
        steps = _steps(case, lanes)
        # Of many lanes' images a few steps are a lot.
        count = max(4, 64 // lanes) if case.image else 64

        def write() -> int:
            for _ in range(count):
                observer(next(steps))
            observer.flush()
            return count * lanes

        found = _growth(write, pid, config, case)
        observer.close()
    return found


def peer_bytes(config: settings.Settings, name: str) -> list[float]:
    """The same for TF-Agents' observer, which writes one lane."""
    case = CASES[name]
    with memory_server.running("peer", name, "1") as (address, pid):
        observer = peer_observers.ReverbAddTrajectoryObserver(
            reverb.Client(address),
            settings.PEER_TABLE,
            sequence_length=case.window,
            stride_length=case.stride,
        )
        steps = _steps(case, 1)

        def write() -> int:
            for _ in range(64):
                observer(tf.nest.map_structure(lambda leaf: leaf[0, ...], next(steps)))
            observer.flush()
            return 64

        found = _growth(write, pid, config, case)
        observer.close()
    return found


def _growth(
    write: Callable[[], int], pid: int, config: settings.Settings, case: Case
) -> list[float]:
    """Bytes by which the server grows per transition, after it has grown a little."""
    # Messages under way count, and those with images are large: there growth must be larger too.
    enough = config.memory_bytes * (4 if case.image else 1)
    start = memory_server.resident_bytes(pid)
    while memory_server.resident_bytes(pid) - start < enough // 2:
        write()
    found = []
    for _ in range(config.few_repetitions):
        before, transitions = _settled(pid), 0
        while memory_server.resident_bytes(pid) - before < enough:
            transitions += write()
        found.append((_settled(pid) - before) / transitions)
    return found


def _settled(pid: int) -> int:
    """The memory after buffers of messages under way have been given back."""
    time.sleep(0.2)
    return memory_server.resident_bytes(pid)


def _raw_bytes(case: Case) -> int:
    leaves = tf.nest.flatten(case.data_spec())
    return sum(leaf.shape.num_elements() * leaf.dtype.size for leaf in leaves)


def _steps(case: Case, lanes: int) -> Iterator:
    """Endless steps in the middle of an episode; images are stacks of the latest four frames."""
    # Written over and over: more than an item of many lanes holds, so that none repeats in it.
    distinct = max(9, 488 // max(8, lanes)) if case.image else 4_099
    steps = [settings.random_step(case.data_spec(), lanes, index) for index in range(distinct)]
    stack = steps[0].observation if case.image else None
    index = 0
    while True:
        step = steps[index % len(steps)]
        index += 1
        if stack is not None:
            stack = np.concatenate([stack[..., 1:], step.observation[..., -1:]], axis=-1)
            step = step._replace(observation=stack)
        yield step
