"""Sends the priorities that train steps compute to the replay server, beside the training."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
from absl import logging
from tf_agents.agents import tf_agent

from actor_learner.learning import priority_ring
from actor_learner.replay.streams import highest_priority
from actor_learner.support import errors, reverb_calls

_RETRY_SECONDS = 0.1
# How long one answer about the highest priority may take, before it is asked for again.
_ANSWER_SECONDS = 5.0
# How long closing waits for the server, which may be gone.
_CLOSING_SECONDS = 10.0
# Stands for the priority of an item of another server; no loss makes it, since it is no priority.
_ELSEWHERE = float("-inf")


class PriorityUpdater:
    """Gives items of a prioritized table new priorities after each train step.

        updater = PriorityUpdater(server.address, "experience", algorithm.priorities)
        learner = Learner(..., after_train_strategy_step_fn=updater.after_train,
                          use_kwargs_in_agent_train=True)
        while training:
            learner.run(iterations=100)
            updater.raise_if_failed()
        updater.close()

    The train step itself only writes keys and priorities into a ring in memory, inside the graph:
    it never waits for the server. A thread takes them from there, keeps the newest priority of each
    key, and sends many at a time. Where it cannot keep up, the ring drops the oldest batches and
    `dropped` counts them; their items keep the priorities they had.

    Priorities apply to the items of whatever kind of experience: transitions or sequences.

    Args:
      server_address: `host:port` of the replay server.
      table_name: The prioritized table.
      priorities: Given the `LossInfo` of a train step, the priorities `[batch]` of its items.
      rows: Rows of the batch that are items of this table, where others come from elsewhere; None
        for all.
      offset: Added to every priority, so that no item's becomes 0 and it is never drawn again.
      shard: Number of the server, if there are several: of each batch only the items that were
        drawn from it are updated. None if there is one.
      capacity: Batches that the ring holds.
      interval_seconds: How often the thread looks for new ones.
      timeout_seconds: How long the server may fail to take priorities before that is an error.
    """

    def __init__(
        self,
        server_address: str,
        table_name: str,
        priorities: Callable[[tf_agent.LossInfo], tf.Tensor],
        *,
        rows: slice | None = None,
        offset: float = 1e-3,
        shard: int | None = None,
        capacity: int = 256,
        interval_seconds: float = 0.02,
        timeout_seconds: float = 60.0,
    ) -> None:
        if offset < 0:
            raise errors.ConfigError(f"PriorityUpdater.offset must be 0 or more, got {offset}")
        self._client = reverb.Client(server_address)
        self._table_name = table_name
        self._priorities = priorities
        self._rows = slice(None) if rows is None else rows
        self._offset = offset
        self._shard = shard
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds
        found = reverb_calls.fetch_tables(self._client, timeout_seconds)
        if table_name not in found:
            raise errors.ReplayError(
                f"the server at {server_address} has no table '{table_name}' whose priorities "
                f"could be updated; it has {', '.join(map(repr, sorted(found)))}"
            )
        highest_table = highest_priority.table_for(table_name)
        self._highest_table = highest_table if highest_table in found else None
        self._highest = 0.0
        self._ring = priority_ring.PriorityRing(capacity)
        self._sent = 0  # Batches sent or dropped: all up to this one are dealt with.
        self._dropped = 0
        self._updates = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._awake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="priority-updater", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Batches whose priorities were overwritten before they could be sent."""
        return self._dropped

    @property
    def updates(self) -> int:
        """Priorities sent to the server so far."""
        return self._updates

    @tf.autograph.experimental.do_not_convert
    def after_train(self, experience: Any, loss_info: tf_agent.LossInfo) -> None:
        """Notes the priorities of one batch; traced into the train step by the learner.

        Args:
          experience: `(experience, SampleInfo)`, as the learner passes it.
          loss_info: What `agent.train` returned for it.
        """
        _, info = experience
        priorities = tf.cast(self._priorities(loss_info), tf.float64)
        priorities = priorities[self._rows] + self._offset
        if self._shard is not None:
            ours = tf.equal(info.shard[self._rows], self._shard)
            priorities = tf.where(ours, priorities, _ELSEWHERE)
        self._ring.write(info.key[self._rows], priorities)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Waits until the server has the priorities of all train steps that are done.

        Raises:
          errors.ReplayTimeoutError: If that takes too long.
          errors.ReplayError: If the updater has failed.
        """
        target = self._ring.written()
        self._awake.set()
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._sent >= target or self._error is not None, timeout_seconds
            )
        self.raise_if_failed()
        if not done:
            raise errors.ReplayTimeoutError(
                f"the priorities of {target - self._sent} batches are not yet with the Reverb "
                f"server at {self._client.server_address} after {timeout_seconds:g} s: it has "
                "stopped, or is overloaded"
            )

    def raise_if_failed(self) -> None:
        """Raises what ended the thread, if anything has; the trainer calls this between steps."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Sends what is pending if the server takes it, and ends the thread; safe to call twice.

        Never raises: an error that nobody has seen is logged. Blocks ten seconds at most.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._awake.set()
        self._thread.join(_CLOSING_SECONDS)
        if self._thread.is_alive():
            logging.error("The thread that updates priorities has not ended; it is left behind.")
        elif self._error is not None:
            logging.error("Priorities were not all updated: %s", self._error)
        if self._dropped:
            logging.warning(
                "Priorities of %d of %d batches were dropped: the replay server did not keep up.",
                self._dropped,
                self._sent,
            )

    # The thread.

    def _run(self) -> None:
        try:
            while True:
                closing = (
                    self._closing.is_set()
                )  # Read first, so that what came before it is still sent.
                self._send_written()
                if closing:
                    return
                self._awake.wait(self._interval_seconds)
                self._awake.clear()
        except BaseException as error:  # noqa: B036 - raised again by raise_if_failed and flush.
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _send_written(self) -> None:
        batch = self._ring.read_after(self._sent)
        if batch is None:
            return
        ours = batch.priorities != _ELSEWHERE
        batch = batch._replace(keys=batch.keys[ours], priorities=batch.priorities[ours])
        if not np.isfinite(batch.priorities).all():
            raise errors.ReplayError(
                f"a train step gave a priority that is not a finite number to items of table "
                f"'{self._table_name}': the loss has diverged; lower the learning rate, or clip "
                "gradients"
            )
        keys, priorities = newest_per_key(batch.keys, batch.priorities)
        updates = dict(zip(keys.tolist(), priorities.tolist()))
        if updates:
            self._call(lambda: self._client.mutate_priorities(self._table_name, updates))
        highest = float(batch.priorities.max(initial=0.0))
        table = self._highest_table
        if table is not None and highest > self._highest:
            self._call(lambda: self._raise_highest(table, highest))
        self._updates += len(keys)
        with self._changed:
            self._dropped += batch.dropped
            self._sent = batch.last
            self._changed.notify_all()

    def _raise_highest(self, table: str, highest: float) -> None:
        """Publishes the highest priority so far, unless one from before a restart is higher."""
        if self._highest_table is None:
            return
        timeout = min(self._timeout_seconds, _ANSWER_SECONDS)
        known = highest_priority.read(self._client, table, timeout)
        if known is None or highest > known:
            highest_priority.publish(self._client, table, highest, timeout)
        self._highest = max(highest, known or 0.0)

    def _call(self, call: Callable[[], None]) -> None:
        """Makes a call to the server, again and again where it refuses, until time is up."""
        most = _CLOSING_SECONDS if self._closing.is_set() else np.inf
        seconds = min(self._timeout_seconds, most)
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            try:
                reverb_calls.call_with_deadline(call, max(left, 0.0), self._too_late)
                return
            except (RuntimeError, errors.ReplayTimeoutError) as error:
                # The connection broke off: the server ends or restarts.
                if time.monotonic() + _RETRY_SECONDS > deadline or self._closing.wait(
                    _RETRY_SECONDS
                ):
                    raise self._too_late() from error

    def _too_late(self) -> errors.ReplayTimeoutError:
        return errors.ReplayTimeoutError(
            f"the Reverb server at {self._client.server_address} has not taken new priorities for "
            f"table '{self._table_name}' for {self._timeout_seconds:g} s: it has stopped, or is "
            "overloaded"
        )


def newest_per_key(keys: np.ndarray, priorities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves the last priority of each key.

    Args:
      keys: `[n]`, oldest first, with repetitions.
      priorities: `[n]`.

    Returns:
      Keys without repetitions, in ascending order, and their priorities.
    """
    unique, last = np.unique(keys[::-1], return_index=True)
    return unique, priorities[::-1][last]
