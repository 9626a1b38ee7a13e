"""A bounded queue of unrolls for one process: tensors go in and come out, and nothing is copied."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner import experience
from actor_learner.replay.layouts import unroll_layout
from actor_learner.replay.server import state
from actor_learner.support import errors

# How often whoever waits for room looks: what the graph of a train step takes out tells nobody.
_LOOK_SECONDS = 0.002
_TURN_SECONDS = 0.02


class LocalQueue:
    """Unrolls of all lanes of one actor, each taken out once, in the order they were put in.

    One thread puts, another may take; what is taken is taken in graphs.

    Args:
      name: Of the queue, for errors and lines of metrics.
      layout: Of the unrolls.
      max_size: Unrolls that it holds at most.
    """

    def __init__(self, name: str, layout: unroll_layout.UnrollLayout, max_size: int) -> None:
        self.name = name
        self.layout = layout
        self.max_size = max_size
        self._spec = layout.unroll_spec()
        flat = tf.nest.flatten(self._spec)
        self._fifo = tf.queue.FIFOQueue(
            max_size,
            [*(spec.dtype for spec in flat), tf.int64],
            [*(spec.shape for spec in flat), []],
        )
        self._changed = threading.Condition()
        self._inserts = 0

    @property
    def unroll_spec(self) -> experience.Unroll:
        """Specs of the leaves of an unroll, `[lanes, ...]`."""
        return self._spec

    def __len__(self) -> int:
        """Unrolls that it holds now."""
        return int(self._fifo.size())

    def put(self, unroll: experience.Unroll, version: int, timeout_seconds: float) -> None:
        """Puts an unroll in; blocks while the queue is full.

        Args:
          unroll: Leaves `[lanes, ...]`, as `unroll_spec` says.
          version: Train step of the policy that acted.
          timeout_seconds: How long to wait for room.

        Raises:
          errors.ReplayTimeoutError: If there is none by then.
        """
        deadline = time.monotonic() + timeout_seconds
        while len(self) >= self.max_size:
            if time.monotonic() >= deadline:
                raise errors.ReplayTimeoutError(
                    f"queue {self.name!r} has been full, with {self.max_size} unrolls, for "
                    f"{timeout_seconds:g} s: the learner takes none out. If its train steps take "
                    "that long, raise UnrollQueue.timeout_seconds"
                )
            time.sleep(_LOOK_SECONDS)
        # Only this thread puts: there is room.
        self._fifo.enqueue([*tf.nest.flatten(unroll), tf.constant(version, tf.int64)])
        with self._changed:
            self._inserts += 1
            self._changed.notify_all()

    def take(self, count: int) -> tuple[experience.Unroll, experience.SampleInfo]:
        """Takes unrolls out, for graphs; leaves are `[count * lanes, ...]`.

        There must be as many: see `wait_in_graph`.
        """
        lanes = self.layout.num_lanes
        size = tf.cast(self._fifo.size(), tf.int64)
        if count == 1:
            *flat, version = self._fifo.dequeue()
            version = version[tf.newaxis]
        else:
            *flat, version = self._fifo.dequeue_many(count)
            flat = [tf.reshape(leaf, [-1, *leaf.shape[2:]]) for leaf in flat]
        one = tf.ones([count * lanes], tf.float64)
        info = experience.SampleInfo(
            key=tf.zeros([count * lanes], tf.uint64),  # Nothing can be asked of what is taken out.
            probability=one,
            table_size=tf.fill([count * lanes], size),
            priority=one,
            version=tf.repeat(version, lanes),
        )
        return tf.nest.pack_sequence_as(self._spec, flat), info

    def wait_in_graph(self, count: int, timeout_seconds: float) -> tf.Tensor:
        """Waits in a graph until there are `count` unrolls; False if that takes too long."""
        # In short turns, between which the thread goes back to TensorFlow: with as few threads
        # as cores, the actor that is waited for may need this one.

        def begin() -> np.float64:
            return np.float64(time.monotonic() + timeout_seconds)

        def wait_a_turn() -> np.float64:
            with self._changed:
                if len(self) < count:
                    self._changed.wait(_TURN_SECONDS)
            return np.float64(time.monotonic())

        def is_there() -> tf.Tensor:
            return self._fifo.size() >= count

        def wait() -> tf.Tensor:
            deadline = tf.ensure_shape(tf.numpy_function(begin, (), tf.float64), ())
            (waited,) = tf.while_loop(
                lambda now: tf.logical_and(now < deadline, tf.logical_not(is_there())),
                lambda now: [tf.ensure_shape(tf.numpy_function(wait_a_turn, (), tf.float64), ())],
                [tf.constant(0.0, tf.float64)],
            )
            with tf.control_dependencies([waited]):
                return is_there()

        return tf.cond(is_there(), lambda: tf.constant(True), wait)

    def table_state(self) -> state.TableState:
        """What a table of a replay server would say of itself."""
        size = len(self)
        samples = self._inserts - size
        return state.TableState(
            name=self.name,
            size=size,
            max_size=self.max_size,
            inserts=self._inserts,
            samples=samples,
            unique_samples=samples,
            samples_per_insert=samples / self._inserts if self._inserts else 0.0,
            blocked="inserting" if size >= self.max_size else None if size else "sampling",
            why="" if size else "the queue is empty: sampling waits for an unroll",
        )


def joined(states: list[state.TableState]) -> state.TableState:
    """The states of queues whose unrolls make batches together, as that of one."""
    first, *others = states
    if not others:
        return first
    size, inserts, samples = (
        sum(getattr(one, name) for one in states) for name in ("size", "inserts", "samples")
    )
    waits = next((one for one in states if one.blocked == "sampling"), None)
    return state.TableState(
        name=first.name,
        size=size,
        max_size=sum(one.max_size for one in states),
        inserts=inserts,
        samples=samples,
        unique_samples=samples,
        samples_per_insert=samples / inserts if inserts else 0.0,
        blocked=first.blocked if waits is None else waits.blocked,
        why="" if waits is None else waits.why,
    )


def batch(parts: list[Any]) -> Any:
    """Joins the unrolls and infos of several queues along the lanes."""
    if len(parts) == 1:
        return parts[0]
    return tf.nest.map_structure(lambda *leaves: tf.concat(leaves, axis=0), *parts)
