"""On-policy experience: a queue of unrolls, each learned from once, in the order of collection."""

from __future__ import annotations

import copy

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner.replay.layouts import unroll_layout
from actor_learner.replay.reading import unroll_dataset, version_limit
from actor_learner.replay.server import shards, tables
from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import unroll_observer
from actor_learner.support import configurable, errors

Experience = sample_stream.Experience
Version = sample_stream.Version

TABLE = "unrolls"


@configurable.register
class UnrollQueue(sample_stream.SampleStream):
    """One item per unroll of all lanes of a group of an actor.

    The learner's data lag behind the newest policy by at most `max_queued_batches + prefetch`
    train steps, plus what each actor has on its way: the unroll it is acting out, and
    `max_in_flight_items` that wait for room; as separate jobs, plus the train steps between two
    publications of the policy. Actors wait when the queue is full.

    Args:
      unroll_length: T, steps per unroll.
      unrolls_per_batch: Unrolls per train step, a multiple of the actor's lanes; None is one unroll
        of each lane. The experiment's `batch_size` is not used.
      max_queued_batches: Batches that the queue holds at most.
      max_in_flight_items: Unrolls of all lanes that an actor may have unconfirmed before it waits.
      prefetch: Batches that the learner takes out in advance. Several learners take none.
      timeout_seconds: How long an actor waits for room before it gives up.
      table_name: Name of the queue; streams that share a server need different ones.
      in_process: Where collecting and learning share a process, hand unrolls over within it, and
        whole unrolls of a `TensorEnvironment` as the tensors they are, instead of through the
        replay server. The batches are the same. As separate jobs it has no effect.
    """

    kind = experience_lib.UNROLLS
    repeatable = True
    spreads = True

    def __init__(
        self,
        unroll_length: int = 32,
        *,
        unrolls_per_batch: int | None = None,
        max_queued_batches: int = 2,
        max_in_flight_items: int = 1,
        prefetch: int = 1,
        timeout_seconds: float = 60.0,
        table_name: str = TABLE,
        in_process: bool = False,
    ) -> None:
        super().__init__(table_name)
        self._check_counts(
            unroll_length=unroll_length,
            unrolls_per_batch=unrolls_per_batch,
            max_queued_batches=max_queued_batches,
            max_in_flight_items=max_in_flight_items,
            prefetch=prefetch,
        )
        if timeout_seconds <= 0:
            raise errors.ConfigError(
                f"UnrollQueue.timeout_seconds must be above 0, got {timeout_seconds}"
            )
        self._unroll_length = int(unroll_length)
        self._unrolls_per_batch = unrolls_per_batch
        self._max_queued_batches = int(max_queued_batches)
        self._max_in_flight_items = int(max_in_flight_items)
        self._prefetch = int(prefetch)
        self._timeout_seconds = timeout_seconds
        self._num_learners = 1
        self.in_process = in_process

    @property
    def unroll_length(self) -> int:
        return self._unroll_length

    @property
    def unrolls_per_batch(self) -> int | None:
        """Unrolls per train step; None is one of each lane."""
        return self._unrolls_per_batch

    @property
    def max_queued_batches(self) -> int:
        """Batches that the queue holds at most."""
        return self._max_queued_batches

    @property
    def timeout_seconds(self) -> float:
        """How long an actor waits for room before it gives up."""
        return self._timeout_seconds

    def cells_per_batch(self, experience: Experience) -> int:
        """Items that make a batch.

        Raises:
          errors.ConfigError: If a batch is not a whole number of items.
        """
        lanes = experience.num_lanes * experience.num_groups
        unrolls = lanes if self._unrolls_per_batch is None else self._unrolls_per_batch
        if unrolls % lanes:
            raise errors.ConfigError(
                f"UnrollQueue.unrolls_per_batch is {unrolls}, not a multiple of the actor's "
                f"{lanes} lanes, whose unrolls come together: choose {lanes}, {2 * lanes}, ... or "
                "another number of lanes (GymnasiumEnvironment.num_envs, Experiment.ring_size)"
            )
        return int(unrolls) // experience.num_lanes

    def for_policy(self, policy: str, turn_ticks: int) -> UnrollQueue:
        """Has room for what is written in a turn of the other policy's actor."""
        own = super().for_policy(policy, turn_ticks)
        own._max_queued_batches += -(-turn_ticks // self._unroll_length)
        return own

    def with_lanes_apart(self, num_lanes: int) -> UnrollQueue:
        """Batches stay as large: one unroll of each lane, unless it is said.

        Lanes that finish their unrolls at once may write a little more than a batch.
        """
        apart = copy.copy(self)
        apart._max_queued_batches = max(2, self._max_queued_batches)
        apart._unrolls_per_batch = self._unrolls_per_batch or num_lanes
        return apart

    def with_window(self, burn_in: int, sample: int, bootstrap: int) -> UnrollQueue:
        if (burn_in, bootstrap) != (0, 1):
            raise errors.ConfigError(
                f"burn_in_steps is {burn_in} and bootstrap_steps {bootstrap}, but an unroll begins "
                "with a step that is learned from and ends with one observation to bootstrap from: "
                "leave both out"
            )
        own = copy.copy(self)
        own._unroll_length = sample
        return own

    def for_learners(self, num_learners: int, experience: Experience) -> UnrollQueue:
        cells = self.cells_per_batch(experience)
        if cells % num_learners:
            lanes = experience.num_lanes * experience.num_groups
            raise errors.ConfigError(
                f"--learners={num_learners}: a batch is {cells} item(s) of {experience.num_lanes} "
                "unrolls each, which cannot be cut into as many equal parts: set "
                f"UnrollQueue.unrolls_per_batch to a multiple of {num_learners * lanes}"
            )
        part = copy.copy(self)
        part._num_learners = num_learners
        return part

    def tables(self, experience: Experience) -> list[reverb.Table]:
        signature = self.layout(experience).signature()
        size = self._max_queued_batches * self.cells_per_batch(experience)
        return [tables.queue_table(self.table_name, size, signature=signature)]

    def items_of_each_share(self, experience: Experience) -> int:
        """Those of a batch: where actors wait for room in a full share, the learner has a batch."""
        return self.cells_per_batch(experience)

    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
    ) -> unroll_observer.UnrollObserver:
        return unroll_observer.UnrollObserver(
            client,
            self.table_name,
            self.layout(experience),
            max_in_flight_items=self._max_in_flight_items,
            timeout_seconds=self._timeout_seconds,
            version=version,
        )

    def dataset(
        self,
        experience: Experience,
        server_address: str,
        batch_size: int,
        timeout_seconds: float,
        limit: version_limit.VersionLimit | None = None,
    ) -> tf.data.Dataset:
        """Batches of `(Unroll, SampleInfo)`; `batch_size` is not used, `unrolls_per_batch` is.

        Unrolls that are older than `limit` allows are dropped when a batch is asked for.

        Raises:
          errors.ConfigError: If several learners were to share the queues of several servers.
        """
        del batch_size
        if self._num_learners > 1 and len(shards.addresses_of(server_address)) > 1:
            # Whoever merges queues takes unrolls out in advance, and others wait for those.
            raise errors.ConfigError(
                f"{self._num_learners} learners cannot share the queues of several replay servers: "
                "use one server (--replays=1), or one learner"
            )
        return unroll_dataset.unrolls(
            server_address,
            self.table_name,
            self.layout(experience),
            cells_per_batch=self.cells_per_batch(experience) // self._num_learners,
            # What one learner took out in advance, the others would wait for.
            prefetch=self._prefetch if self._num_learners == 1 else 0,
            timeout_seconds=timeout_seconds,
            limit=limit,
        )

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        return num_items * experience.num_lanes * self._unroll_length

    def group_steps_per_update(self, experience: Experience, batch_size: int) -> int | None:
        del batch_size
        return self._unroll_length * self.cells_per_batch(experience)

    def layout(self, experience: Experience) -> unroll_layout.UnrollLayout:
        """How unrolls stand in items."""
        return unroll_layout.UnrollLayout(
            experience.data_spec, experience.num_lanes, self._unroll_length
        )
