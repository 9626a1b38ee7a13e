"""Builders of Reverb tables and rate limiters, bound from gin, that refuse what would deadlock.

ReplayServer.tables = [@uniform_table()]
uniform_table.name = 'experience'
uniform_table.max_size = 100_000
uniform_table.rate_limiter = @min_size()
min_size.min_size = 1_000
"""

from __future__ import annotations

import re
import sys
import weakref
from typing import Any

import reverb

from actor_learner.support import configurable, errors, reverb_calls

_RUN_DIGITS = 8

# Reverb ends the process when a limiter is given to a second table.
_limiters_in_use: weakref.WeakSet[reverb.rate_limiters.RateLimiter] = weakref.WeakSet()


@configurable.register
def min_size(min_size: int = 1) -> reverb.rate_limiters.RateLimiter:
    """Sampling waits until the table holds `min_size` items; inserting never waits.

    The right limiter for a loop that collects and trains in turn, in one thread.
    """
    return reverb.rate_limiters.MinSize(_whole_number("min_size.min_size", min_size))


@configurable.register
def sample_to_insert_ratio(
    samples_per_insert: float, min_size: int, error_buffer: float | None = None
) -> reverb.rate_limiters.RateLimiter:
    """Keeps `samples / inserts` near `samples_per_insert`, by making the faster side wait.

    Below `min_size` items inserting is free and sampling waits. From then on
    `error = (inserts - min_size) * samples_per_insert - samples` stays within `±error_buffer`.
    Actors and learner must run at the same time: one thread that collects, then trains, waits for
    itself. There, use `min_size`.

    Args:
      samples_per_insert: How many times an item is sampled on average.
      min_size: Items needed before the first sample.
      error_buffer: How far either side may run ahead, in samples. Default: a tenth of
        `min_size * samples_per_insert`, and at least the room for two inserts and two samples.

    Raises:
      errors.ConfigError: If the numbers would block one side for ever.
    """
    name = "sample_to_insert_ratio"
    min_size = _whole_number(f"{name}.min_size", min_size)
    if samples_per_insert <= 0:
        raise errors.ConfigError(
            f"{name}.samples_per_insert is {samples_per_insert}; it must be above 0. For no ratio "
            f"at all use @min_size()"
        )
    smallest = max(1.0, float(samples_per_insert))
    if error_buffer is None:
        error_buffer = max(2 * smallest, 0.1 * min_size * samples_per_insert)
    if error_buffer < smallest:
        raise errors.ConfigError(
            f"{name}.error_buffer is {error_buffer:g}, below {smallest:g}: one insert moves the "
            f"error by {samples_per_insert:g} and one sample by 1, so neither side could move "
            f"once the error is near its bounds. Set it to at least {smallest:g}, better "
            f"{2 * smallest:g} or a few batches"
        )
    return reverb.rate_limiters.SampleToInsertRatio(
        samples_per_insert=float(samples_per_insert),
        min_size_to_sample=min_size,
        error_buffer=float(error_buffer),
    )


@configurable.register
def uniform_table(
    name: str,
    max_size: int,
    *,
    signature: Any = None,
    rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    max_times_sampled: int = 0,
) -> reverb.Table:
    """A table sampled uniformly; the oldest item leaves when it is full.

    Args:
      name: What observers and buffers call it.
      max_size: Items it holds at most.
      signature: Nest of `tf.TensorSpec` of an item (`signatures.window_signature`); with it, items
        of another shape are refused when they are written.
      rate_limiter: Default `min_size(1)`. Of no other table; from gin, `@min_size()` makes another
        for each.
      max_times_sampled: An item leaves after so many samples; 0: never for that reason.

    Raises:
      errors.ConfigError: If the table could never be sampled or inserted into.
    """
    sampler = reverb.selectors.Uniform()
    return _table(
        "uniform_table", name, max_size, sampler, signature, rate_limiter, max_times_sampled
    )


@configurable.register
def prioritized_table(
    name: str,
    max_size: int,
    *,
    signature: Any = None,
    rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    max_times_sampled: int = 0,
    priority_exponent: float = 0.8,
) -> reverb.Table:
    """A table sampled with probability proportional to `priority ** priority_exponent`.

    Args and errors as in `uniform_table`. An exponent of 0 samples uniformly.
    """
    if priority_exponent < 0:
        raise errors.ConfigError(
            f"prioritized_table.priority_exponent is {priority_exponent}; it must be 0 or more"
        )
    sampler = reverb.selectors.Prioritized(float(priority_exponent))
    return _table(
        "prioritized_table", name, max_size, sampler, signature, rate_limiter, max_times_sampled
    )


@configurable.register
def queue_table(name: str, max_size: int, *, signature: Any = None) -> reverb.Table:
    """A first-in-first-out queue: each item is sampled once, in order. The on-policy stream.

    Inserting waits while it holds `max_size` items, sampling while it is empty; nothing is dropped.
    """
    max_size = _whole_number("queue_table.max_size", max_size)
    return reverb.Table.queue(_name("queue_table", name), max_size, signature=signature)


@configurable.register
def lifo_table(
    name: str,
    max_size: int,
    *,
    signature: Any = None,
    rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
    max_times_sampled: int = 0,
) -> reverb.Table:
    """A table sampled newest item first; the oldest leaves when it is full.

    Args and errors as in `uniform_table`. With `max_times_sampled=0` the newest item is sampled
    until a newer one arrives.
    """
    sampler = reverb.selectors.Lifo()
    return _table("lifo_table", name, max_size, sampler, signature, rate_limiter, max_times_sampled)


def _table(builder, name, max_size, sampler, signature, rate_limiter, max_times_sampled):
    if rate_limiter is None:
        rate_limiter = reverb.rate_limiters.MinSize(1)
    if rate_limiter in _limiters_in_use:
        raise errors.ConfigError(
            f"{builder}.rate_limiter of table {name!r} serves another table already; build one for "
            "each: where a builder of tables is called again, its rate limiter must be built in it"
        )
    _limiters_in_use.add(rate_limiter)
    table = reverb.Table(
        name=_name(builder, name),
        sampler=sampler,
        remover=reverb.selectors.Fifo(),
        max_size=_whole_number(f"{builder}.max_size", max_size),
        rate_limiter=rate_limiter,
        max_times_sampled=_whole_number(f"{builder}.max_times_sampled", max_times_sampled, least=0),
        signature=signature,
    )
    _refuse_deadlock(builder, table.info)
    return table


def _refuse_deadlock(builder: str, info: reverb.reverb_types.TableInfo) -> None:
    limiter = info.rate_limiter_info
    if limiter.min_size_to_sample > info.max_size:
        raise errors.ConfigError(
            f"table {info.name!r} can never be sampled: its rate limiter wants "
            f"{limiter.min_size_to_sample} items first and {builder}.max_size is {info.max_size}. "
            f"Raise max_size or lower min_size"
        )
    keeps_ratio = limiter.max_diff < sys.float_info.max
    if keeps_ratio and 0 < info.max_times_sampled < limiter.samples_per_insert:
        raise errors.ConfigError(
            f"table {info.name!r} would come to a halt: its rate limiter wants "
            f"{limiter.samples_per_insert:g} samples per insert and {builder}.max_times_sampled "
            f"removes an item after {info.max_times_sampled}. Raise max_times_sampled, or set it "
            f"to 0, or lower samples_per_insert"
        )


def _name(builder: str, name: str) -> str:
    if not isinstance(name, str) or not name:
        raise errors.ConfigError(f"{builder}.name is {name!r}; it must be a non-empty string")
    return name


def _whole_number(argument: str, value: Any, least: int = 1) -> int:
    """`value` as an int; gin reads `1e6` as a float, which is meant as a whole number."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or value != int(value) or value < least:
        raise errors.ConfigError(
            f"{argument} is {value!r}; it must be a whole number, {least} or more"
        )
    return int(value)


def of_run(name: str, run_id: str) -> str:
    """Adds the first 8 digits of a run's id: `experience@3f2a91c0`.

    Raises:
      ValueError: If `run_id` is not a hexadecimal id such as `uuid.uuid4().hex`.
    """
    if not re.fullmatch(rf"[0-9a-f]{{{_RUN_DIGITS},}}", run_id):
        raise ValueError(
            f"run id {run_id!r} is not made of {_RUN_DIGITS} or more hexadecimal digits: its first "
            f"{_RUN_DIGITS} must tell runs apart"
        )
    return f"{name}{reverb_calls.RUN_MARK}{run_id[:_RUN_DIGITS]}"


def carries_run(name: str) -> bool:
    """Whether a run's id is part of the name."""
    return reverb_calls.RUN_MARK in name
