"""A Reverb table as a TF-Agents replay buffer: the contract of its module of the same name."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.replay_buffers import replay_buffer

from actor_learner.replay.reading import sample_pipelines
from actor_learner.replay.server import signatures
from actor_learner.support import configurable, errors, reverb_calls

DEFAULT_TABLE = "experience"


@configurable.register
class ReverbReplayBuffer(replay_buffer.ReplayBuffer):
    """Reads one table of a Reverb server; observers write to it.

    Unlike TF-Agents' buffer it samples through one stream rather than up to 32, and works on whole
    batches where all items have one length and no function of single sequences is given.
    """

    def __init__(
        self,
        data_spec: Any,
        table_name: str,
        sequence_length: int | None,
        server_address: str | None = None,
        local_server: Any = None,
        dataset_buffer_size: int | None = None,
        max_cycle_length: int = 32,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        *,
        timeout_seconds: float = 30.0,
    ):
        """Connects to the server and compares the data spec with the table's signature.

        Args:
          data_spec: Nest of specs of one step, e.g. `agent.collect_data_spec`.
          table_name: The table to sample.
          sequence_length: Steps of every item, which is checked and makes reading faster; None
            where it varies.
          server_address: `host:port` of the server. Give this or `local_server`.
          local_server: A `ReplayServer` or `reverb.Server` of this process.
          dataset_buffer_size: Items in flight per worker. Default: 3 batches; more means more
            throughput from afar and staler samples.
          max_cycle_length: Part of TF-Agents' signature; one stream needs no interleaving, so it
            changes nothing here.
          num_workers_per_iterator: Threads that sample, -1 for Reverb's choice. Tables that are
            read in order (queues, heaps) always get one.
          max_samples_per_stream: Samples per call to the server, -1 for Reverb's choice.
          rate_limiter_timeout_ms: How long a dataset waits for the rate limiter before it ends;
            -1: for ever.
          timeout_seconds: The longest that any other call to the server waits.

        Raises:
          ValueError: If not exactly one of `server_address` and `local_server` is given.
          errors.ReplayTimeoutError: If the server does not answer.
          reverb_calls.UnknownTableError: If it has no such table.
          errors.SpecMismatchError: If items of the table do not look like `data_spec`.
        """
        if (server_address is None) == (local_server is None):
            raise ValueError("Give exactly one of server_address and local_server.")
        if server_address is None:
            server_address = f"localhost:{local_server.port}"
        self._table_name = table_name
        self._sequence_length = sequence_length
        self._local_server = local_server
        self._server_address = server_address
        self._dataset_buffer_size = dataset_buffer_size
        self._num_workers_per_iterator = num_workers_per_iterator
        self._max_samples_per_stream = max_samples_per_stream
        self._rate_limiter_timeout_ms = rate_limiter_timeout_ms
        self._timeout_seconds = timeout_seconds
        self._py_client = reverb.Client(server_address)
        self._tf_client = reverb.TFClient(server_address)
        self._table_info = self.get_table_info()
        self._sampled_in_order = self._table_info.sampler_options.is_deterministic
        self._deterministic_table = (
            self._sampled_in_order and self._table_info.remover_options.is_deterministic
        )
        self._check_signature(data_spec)
        super().__init__(
            data_spec=data_spec, capacity=self._table_info.max_size, stateful_dataset=True
        )

    @property
    def py_client(self) -> reverb.Client:
        """Client for Python code, e.g. for observers."""
        return self._py_client

    @property
    def tf_client(self) -> reverb.TFClient:
        """Client for TensorFlow graphs; its calls have no deadline."""
        return self._tf_client

    @property
    def local_server(self) -> Any:
        """The server of this process, as it was given; None for a remote one."""
        return self._local_server

    def get_table_info(self) -> reverb.reverb_types.TableInfo:
        """What Reverb says about the table now; blocks up to `timeout_seconds`."""
        return reverb_calls.fetch_table(self._py_client, self._table_name, self._timeout_seconds)

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        """Sets the priorities of items; keys of items that have left the table are ignored.

        Args:
          keys: `[n]`, of `info.key`; within a sequence all steps carry the same key.
          priorities: `[n]`.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer. Inside a `tf.function` the call
            becomes an op, which waits for ever.
        """
        if tf.is_symbolic_tensor(keys) or tf.is_symbolic_tensor(priorities):
            self._tf_client.update_priorities(self._table_name, keys, priorities)
            return
        keys, priorities = np.asarray(keys), np.asarray(priorities, np.float64)
        if keys.ndim != 1 or keys.shape != priorities.shape:
            raise ValueError(
                f"keys and priorities must both be [n], one per item, but are {list(keys.shape)} "
                f"and {list(priorities.shape)}; of a batch [B, T] take info.key[:, 0]"
            )
        updates = dict(zip(keys.tolist(), priorities.tolist()))
        self._call(lambda: self._py_client.mutate_priorities(self._table_name, updates))

    def add_batch(self, items: Any) -> None:
        """Not supported: observers write to the table."""
        raise NotImplementedError(
            "ReverbReplayBuffer only reads; write with actor_learner.replay.observers"
        )

    def get_next(
        self,
        sample_batch_size: int | None = None,
        num_steps: int | None = None,
        time_stacked: bool = True,
    ) -> None:
        """Not supported: iterate over `as_dataset`."""
        raise NotImplementedError("ReverbReplayBuffer has no get_next; iterate over as_dataset()")

    def gather_all(self) -> None:
        """Not supported: a table may be larger than memory."""
        raise NotImplementedError(
            "ReverbReplayBuffer has no gather_all; a queue can be read with "
            "as_dataset(single_deterministic_pass=True)"
        )

    def _add_batch(self, items: Any) -> None:
        self.add_batch(items)

    def _get_next(self, sample_batch_size: Any, num_steps: Any, time_stacked: Any) -> None:
        self.get_next(sample_batch_size, num_steps, time_stacked)

    def _gather_all(self) -> None:
        self.gather_all()

    def _num_frames(self) -> int:
        return self.get_table_info().current_size

    def _clear(self) -> None:
        self._call(lambda: self._py_client.reset(self._table_name))

    def _as_dataset(
        self,
        sample_batch_size: int | None,
        num_steps: int | None,
        sequence_preprocess_fn: Callable[..., Any] | None,
        num_parallel_calls: int | None,
    ) -> tf.data.Dataset:
        """Sequences `[T, ...]` or `[B, T, ...]` with their info repeated over T.

        Where `num_steps` is not the items' length, they are cut into rows of `num_steps`, the rest
        is dropped and rows are mixed.
        """
        if num_parallel_calls and sample_batch_size and num_parallel_calls > sample_batch_size:
            raise ValueError(
                f"num_parallel_calls cannot be bigger than sample_batch_size: "
                f"{num_parallel_calls} > {sample_batch_size}"
            )
        workers = 1 if self._sampled_in_order else self._num_workers_per_iterator
        return self._dataset(
            sample_batch_size,
            num_steps,
            sequence_preprocess_fn,
            num_parallel_calls,
            shuffle=True,
            num_workers_per_iterator=workers,
            max_in_flight_samples_per_worker=(
                self._dataset_buffer_size or 3 * (sample_batch_size or 1)
            ),
        )

    def _single_deterministic_pass_dataset(
        self,
        sample_batch_size: int | None = None,
        num_steps: int | None = None,
        sequence_preprocess_fn: Callable[..., Any] | None = None,
        num_parallel_calls: int | None = None,
    ) -> tf.data.Dataset:
        """Like `_as_dataset`, in the table's order and one item at a time."""
        if not self._deterministic_table:
            raise ValueError(
                f"Table {self._table_name!r} has no single deterministic pass: either the sampler "
                f"or the remover is not deterministic (FIFO, LIFO or heap): {self._table_info}"
            )
        return self._dataset(
            sample_batch_size,
            num_steps,
            sequence_preprocess_fn,
            None,
            shuffle=False,
            num_workers_per_iterator=1,
            max_in_flight_samples_per_worker=1,
        )

    def _dataset(
        self,
        batch_size: int | None,
        num_steps: int | None,
        sequence_fn: Callable[[Any], Any] | None,
        num_parallel_calls: int | None,
        shuffle: bool,
        **sampler_options: int,
    ) -> tf.data.Dataset:
        self._verify_num_steps(num_steps)
        samples = sample_pipelines.sampler_dataset(
            self._server_address,
            self._table_name,
            self._data_spec,
            self._sequence_length,
            max_samples_per_stream=self._max_samples_per_stream,
            rate_limiter_timeout_ms=self._rate_limiter_timeout_ms,
            **sampler_options,
        )
        cut = num_steps if num_steps != self._sequence_length else None
        if sequence_fn is None and not cut:
            dataset = sample_pipelines.whole_items(samples, batch_size, num_parallel_calls)
        elif sequence_fn is None and cut and self._sequence_length:
            dataset = sample_pipelines.split_items(
                samples, cut, batch_size, shuffle, num_parallel_calls
            )
        else:
            rows_per_item = self._sequence_length // cut if cut and self._sequence_length else 100
            dataset = sample_pipelines.mapped_items(
                samples,
                sequence_fn,
                num_steps if cut else None,
                batch_size,
                rows_per_item * (batch_size or 1) if shuffle else 0,
                num_parallel_calls,
            )
        options = tf.data.Options()
        options.deterministic = self._sampled_in_order
        return dataset.with_options(options)

    def _verify_num_steps(self, num_steps: int | None) -> None:
        if not num_steps or not self._sequence_length:
            return
        if num_steps > self._sequence_length:
            raise ValueError(
                f"Items are too short to cut: num_steps > sequence_length "
                f"({num_steps} vs. {self._sequence_length})"
            )
        if self._sequence_length % num_steps:
            raise ValueError(
                f"Cutting would lose steps: sequence_length is not a multiple of num_steps "
                f"({self._sequence_length} vs. {num_steps})"
            )

    def _check_signature(self, data_spec: Any) -> None:
        signature = self._table_info.signature
        if not signatures.is_signature(signature):
            return
        expected = signatures.window_signature(data_spec, self._sequence_length)
        lines = signatures.describe_mismatch(signature, expected)
        if lines:
            raise errors.SpecMismatchError(
                f"the items of table {self._table_name!r} at {self._server_address} do not look "
                f"like the data_spec of this buffer, of which each item holds "
                f"{self._sequence_length or 'any number of'} steps:\n  " + "\n  ".join(lines)
            )

    def _call(self, call: Callable[[], Any]) -> None:
        try:
            reverb_calls.call_with_deadline(
                call,
                self._timeout_seconds,
                lambda: reverb_calls.no_answer(self._server_address, self._timeout_seconds),
            )
        except RuntimeError as error:
            raise errors.ReplayError(
                f"the Reverb server at {self._server_address} refused a call on table "
                f"{self._table_name!r}: {error}"
            ) from error


def make_reverb_dataset(
    server_address: str,
    table: str,
    data_spec: Any,
    max_in_flight_samples_per_worker: int = 10,
    batch_size: int | None = None,
    prefetch_size: int | None = None,
    sequence_length: int | None = None,
    cycle_length: int | None = None,
    num_parallel_calls: int | None = None,
    per_sequence_fn: Callable[[reverb.ReplaySample], Any] | None = None,
    dataset_transformation: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
    num_workers_per_iterator: int = -1,
    max_samples_per_stream: int = -1,
    rate_limiter_timeout_ms: int = -1,
) -> tf.data.Dataset:
    """A dataset of the items of a table, with the pieces that TF-Agents lets one put in.

    Args:
      server_address: `host:port`.
      table: Name of the table.
      data_spec: Nest of specs of one step.
      max_in_flight_samples_per_worker: Items requested ahead per worker.
      batch_size: Combines so many consecutive elements, if given.
      prefetch_size: Batches to hold ready, if given.
      sequence_length: Steps of every item; None where it varies.
      cycle_length: Streams to interleave. Default: one.
      num_parallel_calls: Streams that are read at the same time.
      per_sequence_fn: Maps each `ReplaySample` of one item, with info repeated over its steps.
      dataset_transformation: Maps the dataset of each stream.
      num_workers_per_iterator: Threads per stream; queues need 1 to keep their order.
      max_samples_per_stream: Samples per call to the server.
      rate_limiter_timeout_ms: The dataset ends when the rate limiter blocks for so long; -1: never.

    Returns:
      A dataset of `ReplaySample`s, or of what the functions made of them.
    """
    per_item = per_sequence_fn is not None or dataset_transformation is not None

    def one_stream(_: Any = 0) -> tf.data.Dataset:
        samples = sample_pipelines.sampler_dataset(
            server_address,
            table,
            data_spec,
            sequence_length,
            max_in_flight_samples_per_worker=max_in_flight_samples_per_worker,
            num_workers_per_iterator=num_workers_per_iterator,
            max_samples_per_stream=max_samples_per_stream,
            rate_limiter_timeout_ms=rate_limiter_timeout_ms,
        )
        if not per_item:
            return samples

        def prepare(sample: Any) -> Any:
            sample = sample_pipelines.repeat_info(sample, 0)
            return per_sequence_fn(sample) if per_sequence_fn else sample

        samples = samples.map(prepare)
        return dataset_transformation(samples) if dataset_transformation else samples

    if cycle_length is None or cycle_length == 1:
        dataset = one_stream()
    else:
        dataset = tf.data.Dataset.range(cycle_length).interleave(
            one_stream,
            cycle_length=cycle_length,
            num_parallel_calls=num_parallel_calls or tf.data.AUTOTUNE,
            deterministic=False,
        )
    if batch_size:
        dataset = dataset.batch(batch_size, drop_remainder=True)
    if not per_item:
        outer = 1 if batch_size else 0
        dataset = dataset.map(lambda sample: sample_pipelines.repeat_info(sample, outer))
    return dataset.prefetch(prefetch_size) if prefetch_size else dataset


def truncate_reshape_rows_by_num_steps(sample: Any, num_steps: int) -> Any:
    """Cuts a nest of `[T, ...]` into `[T // num_steps, num_steps, ...]`, dropping the rest."""
    return sample_pipelines.split_rows(sample, num_steps)
