"""The share of a table that one of several replay servers holds."""

from __future__ import annotations

import reverb

from actor_learner.support import errors

_UNLIMITED = 1e300
_SPREAD_SAMPLERS = ("uniform", "prioritized", "fifo")


def share_of(table: reverb.Table, num_servers: int, min_size: int = 1) -> reverb.Table:
    """Returns a table like `table` for one of several servers.

    All shares together hold as many items as `table`, rounded up, and together need as many before
    they can be sampled. Of a table with room for less than an item per server each holds one.

    Args:
      table: The whole table; stays as it is.
      num_servers: How many servers there are.
      min_size: Items that every share has room for.

    Raises:
      errors.ConfigError: If the order in which the table gives its items would be lost.
    """
    info = table.info
    if not any(map(info.sampler_options.HasField, _SPREAD_SAMPLERS)):
        raise errors.ConfigError(
            f"table '{table.name}' gives its items in an order that {num_servers} replay servers "
            "(--replays) cannot keep together: use one, or a table that is sampled uniformly or by "
            "priority"
        )
    limiter = info.rate_limiter_info
    size = max(min_size, -(-info.max_size // num_servers))
    is_queue = limiter.max_diff < _UNLIMITED
    return table.replace(
        max_size=size,
        rate_limiter=reverb.rate_limiters.RateLimiter(
            samples_per_insert=limiter.samples_per_insert,
            min_size_to_sample=-(-limiter.min_size_to_sample // num_servers),
            min_diff=limiter.min_diff,
            max_diff=float(size) if is_queue else limiter.max_diff,
        ),
    )
