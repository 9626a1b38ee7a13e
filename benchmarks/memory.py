"""Memory of the replay server: bytes per transition, where less is better.

Ours: `LaneReplay`, one-step transitions. Peer: TF-Agents' `ReverbAddTrajectoryObserver`, one item
of two steps per transition. Limit: the raw size of one step, so that `ours / limit` is what storing
costs. Measured as growth of the resident memory of a server in a process of its own, with
observations of random numbers, which do not compress; real ones need less.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.replay_buffers import reverb_utils as peer_observers

from actor_learner.replay import lane_replay, sample_stream
from benchmarks import harness, memory_server, settings

CAPACITY = 100_000_000
VECTOR, IMAGE, FRAMES = "4 floats", "84x84x4 image", "84x84x4 image, frame_stack = 4"
_DISTINCT = {VECTOR: 4_099, IMAGE: 61, FRAMES: 61}
"""Steps that are written over and over: more than an item holds, so that none repeats in it."""


def rows(config: settings.Settings) -> list[harness.Row]:
    cases = [(VECTOR, lanes) for lanes in config.lanes]
    cases += [(case, lanes) for case in (IMAGE, FRAMES) for lanes in config.image_lanes]
    return [_row(config, case, lanes) for case, lanes in cases]


def our_stream(case: str, lanes: int) -> tuple[lane_replay.LaneReplay, sample_stream.Experience]:
    """The stream of a case, and what flows through it."""
    stream = lane_replay.LaneReplay(CAPACITY, frame_stack=4 if case == FRAMES else None)
    return stream, sample_stream.Experience(_data_spec(case), lanes, n_step=1, gamma=0.99)


def _row(config: settings.Settings, case: str, lanes: int) -> harness.Row:
    results = harness.alternate(
        {
            "ours": lambda: our_bytes(config, case, lanes),
            "peer": lambda: peer_bytes(config, case),
        },
        min(3, config.repetitions),
        warm_up=False,
    )
    leaves = tf.nest.flatten(_data_spec(case))
    raw = sum(leaf.shape.num_elements() * leaf.dtype.size for leaf in leaves)
    return harness.row("memory", f"{case}, {lanes} lanes", {**results, "limit": [float(raw)]})


def our_bytes(config: settings.Settings, case: str, lanes: int) -> float:
    """Bytes per transition that a server with our stream's table grows by."""
    stream, experience = our_stream(case, lanes)
    with memory_server.running("ours", case, str(lanes)) as (address, pid):
        observer = stream.observer(experience, reverb.Client(address))
        steps = _steps(case, lanes)

        def write() -> int:
            for _ in range(64):
                observer(next(steps))
            observer.flush()
            return 64 * lanes

        per_transition = _growth(write, pid, _enough(config, case))
        observer.close()
    return per_transition


def peer_bytes(config: settings.Settings, case: str) -> float:
    """The same for TF-Agents' observer, which writes one lane."""
    with memory_server.running("peer", case, "1") as (address, pid):
        observer = peer_observers.ReverbAddTrajectoryObserver(
            reverb.Client(address), settings.PEER_TABLE, sequence_length=2
        )
        steps = _steps(case, 1)

        def write() -> int:
            for _ in range(64):
                observer(tf.nest.map_structure(lambda leaf: leaf[0, ...], next(steps)))
            observer.flush()
            return 64

        per_transition = _growth(write, pid, _enough(config, case))
        observer.close()
    return per_transition


def _enough(config: settings.Settings, case: str) -> int:
    """Growth to be believed: messages under way count, and those with images are large."""
    return config.memory_bytes * (1 if case == VECTOR else 4)


def _growth(write, pid: int, enough: int) -> float:
    """Bytes by which the server grows per transition, after it has grown a little."""
    start = memory_server.resident_bytes(pid)
    while memory_server.resident_bytes(pid) - start < enough // 2:
        write()
    before, transitions = _settled(pid), 0
    while memory_server.resident_bytes(pid) - before < enough:
        transitions += write()
    return (_settled(pid) - before) / transitions


def _settled(pid: int) -> int:
    """The memory after buffers of messages under way have been given back."""
    time.sleep(0.2)
    return memory_server.resident_bytes(pid)


def _data_spec(case: str):
    return settings.vector_spec(4) if case == VECTOR else settings.image_spec()


def _steps(case: str, lanes: int) -> Iterator:
    """Endless steps in the middle of an episode; images are stacks of the latest four frames."""
    steps = [settings.random_step(_data_spec(case), lanes, i) for i in range(_DISTINCT[case])]
    stack = None if case == VECTOR else steps[0].observation
    index = 0
    while True:
        step = steps[index % len(steps)]
        index += 1
        if stack is not None:
            stack = np.concatenate([stack[..., 1:], step.observation[..., -1:]], axis=-1)
            step = step._replace(observation=stack)
        yield step
