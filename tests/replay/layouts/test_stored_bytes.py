"""What tables hold, byte for byte: a replay that an older version saved can still be read."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience as experience_lib
from actor_learner.replay.server import server
from actor_learner.replay.streams import (
    lane_replay,
    prioritized_replay,
    sample_stream,
    seeded_replay,
    sequence_replay,
    unroll_queue,
    window_replay,
)

LANES, STEPS = 2, 8


def data_spec(with_state):
    """Fields of every width, some of which do not fill a word, and a stack of frames."""
    observation = {
        "camera": tensor_spec.BoundedTensorSpec([3, 20, 20], tf.uint8, 0, 255),
        "flags": tf.TensorSpec([3], tf.bool),
        "half": tf.TensorSpec([3], tf.float16),
        "position": tf.TensorSpec([2], tf.float64),
    }
    info = {"log_probability": tf.TensorSpec([], tf.float32)}
    if with_state:
        info[experience_lib.STATE] = (tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.int64))
    kind, number = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
    action = tf.TensorSpec([], tf.int64)
    return trajectory_lib.Trajectory(kind, observation, action, info, kind, number, number)


def steps(spec):
    """Episodes of three steps and their ends, of two lanes, the second one a step ahead."""
    random = np.random.default_rng(7)
    frames = random.integers(0, 256, (STEPS + 1, LANES, 20, 20), np.uint8)
    for t in range(STEPS):
        row = tree.map_structure(
            lambda leaf: random.integers(0, 2, (LANES, *leaf.shape)).astype(
                leaf.dtype.as_numpy_dtype
            ),
            spec,
        )
        position = (t + np.arange(LANES)) % 4
        types = np.array([0, 1, 1, 2], np.int32)
        stacks = np.zeros((LANES, 3, 20, 20), np.uint8)
        for lane in range(LANES):
            for age in range(3):  # An episode's first frames are repeated.
                stacks[lane, 2 - age] = frames[max(t - age, t - position[lane], 0), lane]
        yield row._replace(
            step_type=types[position],
            next_step_type=types[(position + 1) % 4],
            observation={**row.observation, "camera": stacks},
        )


def write(observer, spec):
    for row in steps(spec):
        if getattr(observer, "observes_transitions", False):
            now = ts.TimeStep(row.step_type, row.reward, row.discount, row.observation)
            then = now._replace(step_type=row.next_step_type)
            observer((now, policy_step.PolicyStep(row.action, (), row.policy_info), then))
        else:
            observer(row)
    observer.flush()


STREAMS = {
    "lanes": (lane_replay.LaneReplay(1000, rows_per_item=2), False, 2),
    "frames": (lane_replay.LaneReplay(1000, rows_per_item=2, frame_stack=3), False, 2),
    "rows": (seeded_replay.SeededReplay(), False, 2),
    "windows": (prioritized_replay.PrioritizedReplay(1000), False, 2),
    "tf_agents": (window_replay.WindowReplay(1000), False, 1),
    "sequences": (sequence_replay.SequenceReplay(sequence_length=4, period=2), True, 1),
    "sequences_of_frames": (
        sequence_replay.SequenceReplay(sequence_length=4, period=2, frame_stack=3),
        True,
        1,
    ),
    "unrolls": (unroll_queue.UnrollQueue(3, max_queued_batches=8), True, 1),
}
EXPECTED = {  # By stream: items, and a digest of the signature and of all their bytes.
    "lanes": (3, "9002e2178ea2f799"),
    "frames": (3, "ac8d5ff0a98b99e4"),
    "rows": (8, "8f1b84e1c95c78cb"),
    "windows": (10, "8c537288c672a479"),
    "tf_agents": (11, "c4310f4d3c5cef56"),
    "sequences": (4, "66b1c215ea7bb6e5"),
    "sequences_of_frames": (4, "a65634b1375f6f0b"),
    "unrolls": (2, "c7717b1107aae4f8"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_items_and_signatures_are_those_that_older_versions_wrote(name):
    stream, with_state, n_step = STREAMS[name]
    spec = data_spec(with_state)
    experience = sample_stream.Experience(spec, LANES, n_step, 0.9)
    with server.ReplayServer(stream.tables(experience)) as replay:
        client = replay.client()
        observer = stream.observer(experience, client, version=lambda: 5)
        write(observer, spec)
        size = replay.info().tables[stream.table_name].size
        found = {}
        while len(found) < size:
            samples = client.sample(stream.table_name, 1, emit_timesteps=False)
            for sample in samples:
                found[sample.info.key] = b"".join(np.asarray(c).tobytes() for c in sample.data)
        signature = client.server_info(5)[stream.table_name].signature
        observer.close()
    described = [f"{leaf.name} {leaf.dtype} {leaf.shape}" for leaf in tree.flatten(signature)]
    digest = hashlib.sha256("\n".join(described).encode())
    for item in sorted(found.values()):
        digest.update(item)
    assert (size, digest.hexdigest()[:16]) == EXPECTED[name]
