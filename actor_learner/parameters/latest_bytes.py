"""Tables that hold one array of bytes, the latest; made to be used many times per second.

`ReverbVariableContainer` does the same for any nest of variables. Here there is one column, which
is what Reverb's cost goes by, and a look for something new transfers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import reverb
import tensorflow as tf
from reverb import errors as reverb_errors
from reverb import pybind
from reverb.cc import schema_pb2

from actor_learner.parameters import reverb_variable_container as container_lib
from actor_learner.support import errors, reverb_calls


def bytes_table(name: str, size: int) -> reverb.Table:
    """The table for an array of `size` bytes."""
    return container_lib.variable_table(tf.TensorSpec([size], tf.uint8), name)


def _check(client: reverb.Client, sizes: Mapping[str, int], timeout_seconds: float) -> None:
    for table, size in sizes.items():
        signature = reverb_calls.fetch_table(client, table, timeout_seconds).signature
        expected = tf.TensorSpec([size], tf.uint8)
        if not isinstance(signature, tf.TensorSpec) or not signature.is_compatible_with(expected):
            raise errors.SpecMismatchError(
                f"table {table!r} at {client.server_address} was made for {signature}, not for "
                f"{size} bytes: the networks of the jobs differ"
            )


class Writer:
    """Replaces what the tables hold; for one thread.

    Args:
      server_address: `host:port` of the server.
      sizes: By table, its bytes.
      timeout_seconds: The longest wait for the server.

    Raises:
      reverb_calls.UnknownTableError: If the server has no such table.
      errors.SpecMismatchError: If a table is for something else.
      errors.ReplayTimeoutError: If the server does not answer.
    """

    def __init__(
        self, server_address: str, sizes: Mapping[str, int], timeout_seconds: float
    ) -> None:
        self._client = reverb.Client(server_address)
        self._timeout_seconds = timeout_seconds
        self._writers: dict[str, reverb.TrajectoryWriter] = {}
        _check(self._client, sizes, timeout_seconds)

    def write(self, table: str, content: np.ndarray) -> None:
        """Returns once the server has it.

        Raises:
          errors.ReplayTimeoutError: If the server does not take it in time.
          errors.ReplayError: If it refuses it.
        """
        writer = self._writers.get(table)
        if writer is None:
            # Items are not checked: Reverb expects a dimension of time, and would ask the server.
            writer = self._client.trajectory_writer(1, validate_items=False)
            self._writers[table] = writer
        writer.append([content])
        writer.create_item(table=table, priority=1.0, trajectory=[writer.history[0][-1:]])
        try:
            writer.flush(timeout_ms=max(1, int(self._timeout_seconds * 1000)))
        except reverb_errors.DeadlineExceededError as error:
            raise reverb_calls.no_answer(
                self._client.server_address, self._timeout_seconds
            ) from error
        except RuntimeError as error:
            del self._writers[table]  # It would refuse all that follows.
            raise errors.ReplayError(
                f"the Reverb server at {self._client.server_address} refused an item for table "
                f"{table!r}: {error}"
            ) from error


class Reader:
    """Looks which tables have something new, and reads it; for one thread.

    Args:
      server_address: `host:port` of the server.
      sizes: By table, its bytes.
      timeout_seconds: The longest wait for the server.

    Raises:
      As `Writer`.
    """

    def __init__(
        self, server_address: str, sizes: Mapping[str, int], timeout_seconds: float
    ) -> None:
        self._address = server_address
        self._timeout_seconds = timeout_seconds
        self._client = reverb.Client(server_address)
        # `reverb.Client.server_info` also decodes the signatures of all tables, which takes several
        # times as long as the call.
        self._infos = pybind.Client(server_address)
        self._sizes = dict(sizes)
        self._written: dict[str, int] = {}  # By table, how often it had been written to.
        self._read: dict[str, int] = {}
        # What only grows while a server lives: by table, its age in milliseconds, and how often
        # it was sampled, by anybody.
        self._grows: dict[str, tuple[int, int]] = {}
        _check(self._client, sizes, timeout_seconds)

    @property
    def has_read(self) -> bool:
        """Whether anything was read from this server since it began, as far as can be told."""
        return bool(self._read)

    def changed(self) -> set[str]:
        """The tables that were written to since they were read last; one message each way.

        A table that holds nothing is never among them.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer.
        """
        try:
            answer = self._infos.ServerInfo(max(1, math.ceil(self._timeout_seconds)))
        except RuntimeError as error:
            # It may come back with other contents, and count from zero.
            self._read.clear()
            raise reverb_calls.no_answer(self._address, self._timeout_seconds) from error
        infos = [
            info
            for info in map(schema_pb2.TableInfo.FromString, answer)
            if info.name in self._sizes
        ]
        for info in infos:
            age = sum(milliseconds for _, milliseconds in info.table_worker_time.ListFields())
            sampled = info.rate_limiter_info.sample_stats.completed
            last_age, last_sampled = self._grows.get(info.name, (0, 0))
            self._grows[info.name] = (age, sampled)
            if age < last_age or sampled < last_sampled:
                # Restarted since, before anybody noticed; it may have come to the same count.
                self._read.clear()
        changed = set()
        for info in infos:
            if info.current_size:
                written = info.rate_limiter_info.insert_stats.completed
                self._written[info.name] = written
                if self._read.get(info.name) != written:
                    changed.add(info.name)
        return changed

    def times_written(self, table: str) -> int:
        """How often something was written to a table in the server's life, when last looked."""
        return self._written.get(table, 0)

    def read(self, table: str) -> np.ndarray | None:
        """What one of the tables holds that `changed` has named; the array is the caller's own.

        None if it is no such array: an earlier release wrote it, and it came back with a restored
        server. Whoever writes replaces it.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer, or was emptied meanwhile.
        """
        try:
            sample = reverb_calls.call_with_deadline(
                lambda: next(self._client.sample(table, 1, emit_timesteps=False)),
                max(1.0, self._timeout_seconds),
                lambda: reverb_calls.no_answer(self._address, self._timeout_seconds),
            )
        except (errors.ReplayTimeoutError, RuntimeError) as error:
            self._read.clear()
            if isinstance(error, errors.ReplayTimeoutError):
                raise
            raise reverb_calls.no_answer(self._address, self._timeout_seconds) from error
        self._read[table] = self._written[table]
        age, sampled = self._grows[table]
        self._grows[table] = (age, sampled + 1)
        content = sample.data[0][0]  # [1, size] -> [size]
        fits = content.dtype == np.uint8 and content.shape == (self._sizes[table],)
        return content if fits else None
