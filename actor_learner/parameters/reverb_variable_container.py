"""Variables in a Reverb table: the learner pushes, actors pull; the latest value only.

The contract of TF-Agents' module of the same name: calls wait for the server as long as theirs do,
for ever unless they are given a deadline, but say so in the log. A server is needed, with one table
per nest of variables:

    server = ReplayServer([..., variable_table({POLICY_KEY: policy.variables(), ...})])
    container = ReverbVariableContainer(server.address)
    container.push({POLICY_KEY: policy.variables(), TRAIN_STEP_KEY: train_step})
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable
from typing import Any, Callable, TypeVar

import reverb
import tensorflow as tf
import tree
from absl import logging
from reverb import errors as reverb_errors

from actor_learner.support import configurable, errors, finite, reverb_calls

DEFAULT_TABLE = "variables"
TRAIN_STEP_KEY = "train_step"
POLICY_KEY = "policy_variables"

# How often an empty table is looked at again.
_POLL_SECONDS = 0.05
# A wait without a deadline says so first after this time, then at growing intervals up to the last.
_FIRST_WORD_SECONDS = 10.0
_LAST_WORDS_SECONDS = 60.0

T = TypeVar("T")


class VariablesMismatchError(errors.SpecMismatchError, tf.errors.InvalidArgumentError):
    """Values do not look like the table's signature."""

    def __init__(self, message: str):
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


def variable_table(variables: Any, name: str = DEFAULT_TABLE) -> reverb.Table:
    """The table that a container needs for `variables`, a nest of variables or specs."""
    signature = tree.map_structure(
        lambda variable: tf.TensorSpec(variable.shape, variable.dtype), variables
    )
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )


@configurable.register
class ReverbVariableContainer:
    """A client of the tables that hold variables. May be used from several threads."""

    def __init__(
        self,
        server_address: str,
        table_names: Iterable[str] = (DEFAULT_TABLE,),
        *,
        timeout_seconds: float | None = None,
    ):
        """Connects and checks the tables.

        Args:
          server_address: `host:port` of the server.
          table_names: The tables, each with a signature and `max_size=1` (`variable_table`).
          timeout_seconds: The longest any call waits for the server, or for the first push. None:
            calls wait for ever, and from ten seconds on the log says for whom.

        Raises:
          KeyError: If the server has no such table.
          TypeError: If a table has no signature.
          ValueError: If a table holds more than one item.
          errors.ReplayTimeoutError: If the server does not answer in time.
        """
        self._address = server_address
        self._timeout_seconds = timeout_seconds
        self._client = reverb.Client(server_address)
        self._lock = threading.Lock()
        self._signatures: dict[str, Any] = {}
        self._writers: dict[str, reverb.TrajectoryWriter] = {}
        self._filled: set[str] = set()  # Tables that something was pulled from.
        for table in table_names:
            fetch = functools.partial(reverb_calls.fetch_table, self._client, table)
            info = self._patiently(fetch)
            if info.max_size != 1:
                raise ValueError(
                    f"table {table!r} at {server_address} has max_size {info.max_size}; a table of "
                    f"variables must have 1, so that a pull gets the latest: build it with "
                    f"variable_table()"
                )
            if not info.signature:
                raise TypeError(
                    f"table {table!r} at {server_address} has no signature, which says how its "
                    f"variables are nested: build it with variable_table()"
                )
            self._signatures[table] = info.signature

    def push(self, values: Any, table: str = DEFAULT_TABLE) -> None:
        """Replaces what the table holds; returns once the server has it.

        Args:
          values: Nest of variables, eager tensors or arrays like the table's signature, where
            lists and tuples are alike.
          table: Name of the table.

        Raises:
          KeyError: If the container was not made for this table.
          VariablesMismatchError: If the values look different. It is both a `SpecMismatchError` and
            TensorFlow's `InvalidArgumentError`.
          errors.NotFiniteError: If one of them is NaN or infinite; nothing is sent.
          errors.ReplayTimeoutError: If the server does not take them in time.
        """
        differences = _differences(self._signature(table), values)
        if differences:
            raise VariablesMismatchError(self._mismatch("values", table, differences))
        leaves = [tf.convert_to_tensor(value).numpy() for value in tree.flatten(values)]
        self._require_finite(values, leaves, table)
        with self._lock:
            writer = self._writers.get(table)
            if writer is None:
                # Signatures of such tables have no time dimension, which Reverb's own check of
                # items would want; the values are checked above.
                writer = self._client.trajectory_writer(1, validate_items=False)
                self._writers[table] = writer
            writer.append(leaves)
            item = [column[-1:] for column in writer.history]
            writer.create_item(table=table, priority=1.0, trajectory=item)
            try:
                self._patiently(lambda seconds: self._flush(writer, seconds))
            except errors.ReplayTimeoutError:
                raise
            except RuntimeError as error:
                del self._writers[table]  # It would refuse all that follows.
                raise errors.ReplayError(
                    f"the Reverb server at {self._address} refused variables for table {table!r}: "
                    f"{error}"
                ) from error

    def pull(self, table: str = DEFAULT_TABLE) -> Any:
        """The latest values, a nest of tensors like the table's signature.

        Waits for the first push.

        Raises:
          KeyError: If the container was not made for this table.
          errors.ReplayTimeoutError: If nothing was pushed, or the server does not answer, in time.
        """
        signature = self._signature(table)
        leaves = self._patiently(lambda seconds: self._sample(table, seconds))
        return tree.unflatten_as(signature, [tf.convert_to_tensor(value) for value in leaves])

    def update(self, variables: Any, table: str = DEFAULT_TABLE) -> None:
        """Pulls, then assigns to `variables`, a nest like the table's signature.

        Raises:
          KeyError: If the container was not made for this table.
          errors.SpecMismatchError: If the variables look different; none is assigned.
          errors.NotFiniteError: If what was pulled is not finite; none is assigned.
          errors.ReplayTimeoutError: As `pull`.
        """
        differences = _differences(self._signature(table), variables)
        if differences:
            raise errors.SpecMismatchError(self._mismatch("variables", table, differences))
        values = self.pull(table)
        self._require_finite(values, [value.numpy() for value in tree.flatten(values)], table)
        for variable, value in zip(tree.flatten(variables), tree.flatten(values)):
            variable.assign(value)

    def _patiently(self, attempt: Callable[[float], T]) -> T:
        """Runs `attempt(seconds)` once with the deadline or, without one, until it succeeds.

        An attempt raises ReplayTimeoutError when its time is up; that is what the log then says.
        """
        if self._timeout_seconds is not None:
            return attempt(self._timeout_seconds)
        seconds = _FIRST_WORD_SECONDS
        while True:
            try:
                return attempt(seconds)
            except errors.ReplayTimeoutError as error:
                if reverb_calls.given_up():
                    raise
                logging.warning("Waiting on, without a deadline: %s", error)
            seconds = min(2 * seconds, _LAST_WORDS_SECONDS)

    def _flush(self, writer: reverb.TrajectoryWriter, seconds: float) -> None:
        try:
            writer.flush(timeout_ms=max(1, int(seconds * 1000)))
        except reverb_errors.DeadlineExceededError as error:
            raise reverb_calls.no_answer(self._address, seconds) from error

    def _sample(self, table: str, seconds: float) -> list[Any]:
        """The leaves of the latest values."""
        left = seconds
        if table not in self._filled:
            left = self._wait_for_push(table, seconds)
        try:
            timesteps = reverb_calls.call_with_deadline(
                lambda: next(iter(self._client.sample(table, num_samples=1))),
                max(1.0, left),
                lambda: reverb_calls.no_answer(self._address, seconds),
            )
        except (errors.ReplayTimeoutError, RuntimeError) as error:
            # Its server is gone, or was restarted: the next attempt has to look first.
            self._filled.discard(table)
            if isinstance(error, errors.ReplayTimeoutError):
                raise
            raise reverb_calls.no_answer(self._address, seconds) from error
        self._filled.add(table)
        return timesteps[0].data

    def _wait_for_push(self, table: str, seconds: float) -> float:
        """Waits until the table holds something; returns the seconds left.

        Sampling from an empty table, or from a server that is gone, has no end.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if reverb_calls.fetch_table(self._client, table, left).current_size:
                return left
            if not left or reverb_calls.given_up():
                raise errors.ReplayTimeoutError(
                    f"no variables were pushed yet to table {table!r} at {self._address}; waited "
                    f"{seconds:g} s. Is the learner running, and does it push?"
                )
            time.sleep(min(_POLL_SECONDS, left))

    def _signature(self, table: str) -> Any:
        try:
            return self._signatures[table]
        except KeyError:
            raise reverb_calls.UnknownTableError(
                f"this container knows no table {table!r}, only "
                f"{', '.join(map(repr, self._signatures))}: name it in "
                f"ReverbVariableContainer.table_names"
            ) from None

    def _require_finite(self, nest: Any, leaves: list[Any], table: str) -> None:
        paths = [_name(path) for path, _ in tree.flatten_with_path(nest)]
        problem = finite.first_not_finite(zip(paths, leaves))
        if problem is not None:
            raise errors.NotFiniteError(
                f"variables for table {table!r} at {self._address} are not finite: {problem}; "
                "training has diverged"
            )

    def _mismatch(self, what: str, table: str, differences: list[str]) -> str:
        return (
            f"the {what} do not look like those of table {table!r} at {self._address}:\n  "
            + "\n  ".join(differences)
        )


def _differences(signature: Any, values: Any) -> list[str]:
    """How a nest of variables differs from a signature, a line per variable."""
    expected, given = (dict(tree.flatten_with_path(nest)) for nest in (signature, values))
    lines = [f"{_name(path)}: missing" for path in expected if path not in given]
    lines += [f"{_name(path)}: not expected" for path in given if path not in expected]
    for path, spec in expected.items():
        if path not in given:
            continue
        value = given[path] if hasattr(given[path], "dtype") else tf.convert_to_tensor(given[path])
        dtype, shape = tf.as_dtype(value.dtype), tf.TensorShape(value.shape)
        if dtype != spec.dtype or not spec.shape.is_compatible_with(shape):
            lines.append(
                f"{_name(path)}: expected {spec.dtype.name} {spec.shape}, got {dtype.name} {shape}"
            )
    return lines


def _name(path: tuple) -> str:
    return "/".join(map(str, path)) or "the value itself"
