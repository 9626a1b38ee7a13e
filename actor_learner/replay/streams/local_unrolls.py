"""On-policy experience in one process: unrolls reach the learner without a replay server."""

from __future__ import annotations

from typing import Any

import reverb
import tensorflow as tf

from actor_learner.replay import local_queue
from actor_learner.replay.reading import version_limit
from actor_learner.replay.server import state
from actor_learner.replay.streams import sample_stream, unroll_queue
from actor_learner.replay.writing import local_observer
from actor_learner.support import errors

_plain = tf.autograph.experimental.do_not_convert


class LocalUnrolls(sample_stream.SampleStream):
    """The items and batches of an `UnrollQueue`, between threads of one process.

    Each of `num_actors` observers has a queue of its own, so that batches do not depend on who was
    first: a batch takes the same number of unrolls from each, in the order of the observers.

    `UnrollQueue.in_process` has a run use it; the table that `tables` makes stays empty.

    Args:
      queue: Says how long unrolls are, how many make a batch, and how many may wait.
      num_actors: Actors that put unrolls in.
      max_queued_batches: Batches that may wait; None is what `queue` says.
    """

    kind = unroll_queue.UnrollQueue.kind
    repeatable = True

    def __init__(
        self,
        queue: unroll_queue.UnrollQueue,
        num_actors: int = 1,
        max_queued_batches: int | None = None,
    ) -> None:
        super().__init__(queue.table_name.split("@")[0])
        self._queue = queue
        self._num_actors = num_actors
        self._max_queued_batches = max_queued_batches or queue.max_queued_batches
        self._queues: list[local_queue.LocalQueue] = []
        self._num_observers = 0

    @property
    def table_name(self) -> str:
        return self._queue.table_name

    def tables(self, experience: sample_stream.Experience) -> list[reverb.Table]:
        return self._queue.tables(experience)

    def observer(
        self,
        experience: sample_stream.Experience,
        client: reverb.Client | None = None,
        version: sample_stream.Version = None,
    ) -> local_observer.LocalUnrollObserver:
        """The observer of the next of the actors; `client` is not used.

        Raises:
          ValueError: If all of them have one.
        """
        del client
        if self._num_observers == self._num_actors:
            raise ValueError(f"{self._num_actors} actors have their observers; this is one more")
        self._num_observers += 1
        return local_observer.LocalUnrollObserver(
            self._open(experience)[self._num_observers - 1],
            timeout_seconds=self._queue.timeout_seconds,
            version=version,
        )

    def dataset(
        self,
        experience: sample_stream.Experience,
        server_address: str,
        batch_size: int,
        timeout_seconds: float,
        limit: version_limit.VersionLimit | None = None,
    ) -> tf.data.Dataset:
        """Batches of `(Unroll, SampleInfo)`; a batch is taken out when it is asked for.

        It ends if somebody has waited for a batch for `timeout_seconds`.
        """
        del server_address, batch_size
        if limit is not None:
            raise ValueError("in one process unrolls are learned from in turn: none is too old")
        queues = self._open(experience)
        count = self._cells_per_actor(experience)

        @_plain
        def enough(_: tf.Tensor) -> tf.Tensor:
            return tf.reduce_all([queue.wait_in_graph(count, timeout_seconds) for queue in queues])

        @_plain
        def take(_: tf.Tensor) -> Any:
            return local_queue.batch([queue.take(count) for queue in queues])

        # As many as nobody lives to see.
        return tf.data.Dataset.range(2**62).take_while(enough).map(take)

    def num_transitions(self, experience: sample_stream.Experience, num_items: int) -> int:
        return self._queue.num_transitions(experience, num_items)

    def group_steps_per_update(self, experience: sample_stream.Experience, batch_size: int) -> int:
        """As of an `UnrollQueue`; each of the actors takes so many."""
        del batch_size
        return self._queue.unroll_length * self._cells_per_actor(experience)

    def table_state(self) -> state.TableState:
        """What waits for the learner, in the words of a table."""
        return local_queue.joined([queue.table_state() for queue in self._queues])

    def _cells_per_actor(self, experience: sample_stream.Experience) -> int:
        """Unrolls of each actor that make a batch; unless configured, one of each of its lanes."""
        cells = self._queue.cells_per_batch(experience)
        if self._queue.unrolls_per_batch is None:
            return cells
        if cells % self._num_actors:
            raise errors.ConfigError(
                f"UnrollQueue.unrolls_per_batch is {self._queue.unrolls_per_batch}, which is not a "
                f"multiple of the {experience.num_lanes} lanes of {self._num_actors} actors: leave "
                "it out for one unroll of each lane"
            )
        return cells // self._num_actors

    def _open(self, experience: sample_stream.Experience) -> list[local_queue.LocalQueue]:
        if not self._queues:
            self._queues = [
                local_queue.LocalQueue(
                    self.table_name,
                    self._queue.layout(experience),
                    self._max_queued_batches * self._cells_per_actor(experience),
                )
                for _ in range(self._num_actors)
            ]
        return self._queues
