"""Several replay servers that hold the experience of one run together: addresses, state, shares."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import numpy as np
import reverb
import tensorflow as tf
from absl import logging

from actor_learner.replay.server import state
from actor_learner.support import errors, reverb_calls

_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 5.0

TableInfo = reverb.reverb_types.TableInfo


def addresses_of(server_address: str) -> tuple[str, ...]:
    """The addresses of one server, or of several (`Shards`)."""
    return server_address.addresses if isinstance(server_address, Shards) else (server_address,)


class Shards(str):
    """The addresses of the replay servers of a run, joined by commas.

    A text, so that whatever hands on a server's address hands on those of several as well; only
    those that connect look into it. It also knows what the servers hold. Whoever makes it closes
    it.

    Attributes:
      addresses: `host:port` of each server, in the order of their indices.
      clients: Of each server.
    """

    addresses: tuple[str, ...]
    clients: tuple[reverb.Client, ...]

    def __new__(cls, addresses: Sequence[str]) -> Shards:
        """Names the servers; connects to none."""
        made = super().__new__(cls, ",".join(addresses))
        made.addresses = tuple(addresses)
        made.clients = tuple(reverb.Client(address) for address in addresses)
        made._lock = threading.Lock()
        made._inserts = {}
        made._restarts = 0
        made._shares = {}
        made._closed = threading.Event()
        return made

    _lock: threading.Lock
    _inserts: dict[tuple[str, int], int]  # By table and server.
    _restarts: int
    _shares: dict[str, Shares]
    _closed: threading.Event

    def table_state(self, table: str, timeout_seconds: float = _ANSWER_SECONDS) -> state.TableState:
        """Asks all servers for one table, and adds up what they say.

        Raises:
          errors.ReplayTimeoutError: If one does not answer in time.
          reverb_calls.UnknownTableError: If one has no such table.
        """
        infos = [
            reverb_calls.fetch_table(client, table, timeout_seconds) for client in self.clients
        ]
        with self._lock:
            for index, info in enumerate(infos):
                inserts = info.rate_limiter_info.insert_stats.completed
                if inserts < self._inserts.get((table, index), 0):
                    self._restarts += 1
                self._inserts[table, index] = inserts
            restarts, shares = self._restarts, self._shares.get(table)
        if shares is not None:
            shares.update(infos)
        return state.total(infos, restarts)

    def shares(self, table: str) -> Shares:
        """The shares of the servers in a table, kept up to date by a thread from now on.

        Raises:
          errors.ReplayTimeoutError: If a server does not answer.
        """
        with self._lock:
            found = self._shares.get(table)
        if found is not None:
            return found
        made = Shares(len(self.addresses))
        made.update([reverb_calls.fetch_table(c, table, _ANSWER_SECONDS) for c in self.clients])
        with self._lock:
            self._shares[table] = made
        thread = threading.Thread(
            target=_keep_up,
            args=(weakref.ref(made), self.clients, table, self._closed),
            name="replay-shares",
            daemon=True,
        )
        thread.start()
        return made

    def close(self) -> None:
        """Ends the threads, without waiting for them; safe to call twice."""
        self._closed.set()


class Shares:
    """How much of a table each of several servers holds, as variables that a dataset reads.

    A server's mass is the sum of what makes its items likely to be drawn: the number of items, or
    of their priorities, each to the table's exponent. Servers do not tell sums of priorities; but
    an item that was drawn with probability p gives away the sum, `priority ** exponent / p`, as it
    was then. The mean that follows from the latest item drawn there, times the number of items now,
    is the mass.

    A server whose table cannot be sampled now has no mass, unless none has any.

    Args:
      num_servers: How many servers there are.

    Attributes:
      weights: float64 `[num_servers]`, the probability with which each is to be drawn from next.
      num_items: int64, items of all together.
      latest: float64 `[num_servers, 3]`, priority, probability and table size of the latest item
        that was drawn from each, for datasets of tables with priorities to fill in; 0 before that.
    """

    def __init__(self, num_servers: int) -> None:
        even = np.full(num_servers, 1.0 / num_servers)
        self.weights = tf.Variable(even, trainable=False, dtype=tf.float64)
        self.num_items = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.latest = tf.Variable(tf.zeros([num_servers, 3], tf.float64), trainable=False)
        self.by_priority = False
        self._lock = threading.Lock()
        self._infos: list[TableInfo | None] = [None] * num_servers

    def update(self, infos: Sequence[TableInfo | None]) -> None:
        """Takes in what the servers say; None of one that does not answer keeps what it said last.

        A learner that waits for a server which is away draws from all as before once it is back.
        """
        with self._lock:
            self._infos = [new or old for new, old in zip(infos, self._infos)]
            known = [info for info in self._infos if info is not None]
            self.by_priority = any(_exponent(info) is not None for info in known)
            sizes = np.array([0 if i is None else i.current_size for i in self._infos])
            mass = masses(
                sizes,
                np.array([i is not None and _can_be_sampled(i) for i in self._infos]),
                self.latest.numpy(),
                [None if info is None else _exponent(info) for info in self._infos],
            )
            self.weights.assign(mass / mass.sum())
            self.num_items.assign(int(sizes.sum()))


def masses(
    sizes: np.ndarray,
    can_be_sampled: np.ndarray,
    latest: np.ndarray,
    exponents: Sequence[float | None],
) -> np.ndarray:
    """The masses of several servers, see `Shares`; all alike if none can be sampled.

    Args:
      sizes: `[servers]`, items of each.
      can_be_sampled: `[servers]` bool.
      latest: `[servers, 3]`: priority, probability, and number of items then, of an item that was
        drawn from each; 0 if there is none.
      exponents: Of each table's priorities; None for one that is sampled uniformly.
    """
    means = np.ones(len(sizes))
    known = np.array([e is None for e in exponents]) | (latest[:, 1] > 0)
    for index, exponent in enumerate(exponents):
        if exponent is not None and known[index]:
            priority, probability, size = latest[index]
            means[index] = priority**exponent / (probability * size)
    if known.any():
        means[~known] = means[known].mean()
    mass = np.where(can_be_sampled, sizes * means, 0.0)
    return mass if mass.sum() > 0 else np.ones(len(sizes))


def _exponent(info: TableInfo) -> float | None:
    """The exponent of a table's priorities; None if it is not sampled by priority."""
    options = info.sampler_options
    return options.prioritized.priority_exponent if options.HasField("prioritized") else None


def _can_be_sampled(info: TableInfo) -> bool:
    return state.from_table_info(info).blocked != "sampling"


def _keep_up(
    shares: weakref.ref[Shares],
    clients: Sequence[reverb.Client],
    table: str,
    closed: threading.Event,
) -> None:
    """Asks the servers again and again, until their shares are of no use any more."""
    while not closed.wait(_LOOK_SECONDS):
        infos = [_ask(client, table) for client in clients]
        target = shares()
        if target is None:
            return
        target.update(infos)
        del target


def _ask(client: reverb.Client, table: str) -> TableInfo | None:
    try:
        return reverb_calls.fetch_table(client, table, _ANSWER_SECONDS)
    except errors.ReplayError as error:
        # Those that sample the server, or write to it, find out whether it is gone for good.
        logging.log_every_n_seconds(logging.INFO, "Shares stay as they were: %s", 60, error)
        return None
