"""Seeds for all that is random in a run, so that no two purposes share one.

An environment that is seeded twice with one number plays the same episodes twice. A policy must
not be rated on episodes that it was trained or chosen on, and a run that is resumed must not
collect what it has collected before. Every purpose therefore has a seed of its own, made of the
run's seed, the purpose and whatever else tells two uses apart.
"""

from __future__ import annotations

import hashlib

_LANES = 2**16  # Some environments seed their lanes by counting up from the number they are given.
_RANGE = 2**31 - _LANES  # Some take no more than 31 bits.


def of(seed: int, purpose: str, *apart: int | str) -> int:
    """A seed for one purpose: the same for the same arguments, and unrelated to all others.

    Args:
      seed: Of the run.
      purpose: What it is for.
      *apart: What tells this use from others of the purpose, such as a count.
    """
    digest = hashlib.sha256(repr((int(seed), purpose, *apart)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % _RANGE


def of_life(seed: int, life: int) -> int:
    """The seed of everything random in the `life`-th process that trains a run, from 0.

    The first has the run's own: what a user gives as `--seed` is what the environment gets.
    """
    return seed if life == 0 else of(seed, "life", life)
