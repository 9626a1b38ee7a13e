"""Sequences of stacked frames: each frame is stored once, and what is read is as it was."""

import math

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import sequence_layout
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import sample_stream, sequence_replay
from actor_learner.support import errors

FIRST, MID, LAST = 0, 1, 2


def spec_of(stack_shape):
    return trajectory_lib.Trajectory(
        tf.TensorSpec([], tf.int32),
        {"camera": tf.TensorSpec(stack_shape, tf.uint8), "speed": tf.TensorSpec([], tf.float32)},
        tf.TensorSpec([], tf.int64), (), tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.float32),
    )  # fmt: skip


class Frames:
    """Stacks of the last four frames of two lanes, as a wrapper would make them, ends included."""

    def __init__(self, axis, padding, frame_shape):
        self._axis = axis
        self._padding = padding
        self._random = np.random.default_rng(0)
        self._shape = (2, *frame_shape)
        self._frames = [np.zeros(self._shape, np.uint8)] * 4  # Oldest first.

    def steps(self, lengths, count):
        """`count` steps; lane i has episodes of `lengths[i]` steps."""
        clock = [0, 0]
        for number in range(count):
            new = self._random.integers(1, 255, self._shape, np.uint8)
            frames = [*self._frames[1:], new]
            for lane in range(2):
                if clock[lane] == 0:
                    filler = np.zeros_like(new[lane]) if self._padding == "zero" else new[lane]
                    for frame in (frames := [np.array(frame) for frame in frames])[:-1]:
                        frame[lane] = filler
            self._frames = frames
            types = [FIRST if c == 0 else LAST if c == n else MID for c, n in zip(clock, lengths)]
            clock = [0 if c == n else c + 1 for c, n in zip(clock, lengths)]
            following = [
                FIRST if c == 0 else LAST if c == n else MID for c, n in zip(clock, lengths)
            ]
            yield trajectory_lib.Trajectory(
                np.array(types, np.int32),
                {"camera": np.stack(frames, axis=self._axis), "speed": np.full(2, number, "f4")},
                np.array([number, number]),
                (),
                np.array(following, np.int32),
                np.full(2, number, np.float32),
                np.ones(2, np.float32),
            )


@pytest.mark.parametrize(
    "axis, padding, frame_shape", [(1, "repeated", (3, 2)), (-1, "zero", (40, 40))]
)
def test_stacks_that_are_stored_frame_by_frame_are_read_as_they_were(axis, padding, frame_shape):
    stack_shape = (4, *frame_shape) if axis == 1 else (*frame_shape, 4)
    spec = spec_of(stack_shape)
    flow = sample_stream.Experience(spec, 2, 1, 0.9)
    found, sizes = [], []
    for frame_stack in (None, 4):
        replay = sequence_replay.SequenceReplay(
            100, sequence_length=6, period=2, frame_stack=frame_stack, table=tables.uniform_table
        )
        with server.ReplayServer(replay.tables(flow)) as replay_server:
            observer = replay.observer(flow, replay_server.client())
            for step in Frames(axis, padding, frame_shape).steps((13, 3), 40):
                observer(step)
            observer.close()
            batches = replay.dataset(flow, replay_server.address, 32, 10.0).take(20)
            items = {}
            for batch, info in batches.as_numpy_iterator():
                for row, key in enumerate(info.key):
                    leaves = [leaf[row].tobytes() for leaf in tf.nest.flatten(batch["experience"])]
                    items[key] = tuple(leaves)
            assert batch["experience"].trajectory.observation["camera"].shape[2:] == stack_shape
            assert len(items) == replay_server.info().tables[sequence_replay.TABLE].size
        found.append(sorted(items.values()))
        signature = sequence_layout.SequenceLayout(spec, 2, 6, 2, frame_stack).signature()
        sizes.append(sum(s.shape.num_elements() * s.dtype.size for s in signature.values()))
    assert found[0] == found[1] and len(found[0]) > 20
    # Of 3 blocks: 6 stacks of 4 frames, or 6 frames and 3 older ones of each block's first row.
    assert sizes[0] - sizes[1] == (6 * 4 - (6 + 3 * 3)) * math.prod(frame_shape)


def test_observations_that_are_no_stacks_are_refused_by_a_stream_that_stores_frames():
    spec = spec_of([4, 3, 2])
    flow = sample_stream.Experience(spec, 2, 1, 0.9)
    replay = sequence_replay.SequenceReplay(100, sequence_length=6, period=2, frame_stack=4)
    with server.ReplayServer(replay.tables(flow)) as replay_server:
        observer = replay.observer(flow, replay_server.client())
        first, second, third = Frames(1, "zero", (3, 2)).steps((9, 9), 3)
        observer(first)
        with pytest.raises(errors.SpecMismatchError, match="Set SequenceReplay.frame_stack"):
            observer(third)
        observer.close()
    with pytest.raises(errors.ConfigError, match="frame_stack is 5"):
        sequence_replay.SequenceReplay(frame_stack=5).tables(flow)
