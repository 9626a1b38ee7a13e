"""Seeds for lanes, derived from one number."""

from __future__ import annotations

import numpy as np

from actor_learner.support import errors


def checked_seed(seed: int) -> int:
    """Returns `seed` as an int.

    Raises:
      errors.ConfigError: If it is not a whole number of zero or more.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise errors.ConfigError(f"seed is {seed!r}: it must be a whole number, zero or more")
    return int(seed)


def lane_seeds(seed: int, num_lanes: int) -> list[int]:
    """Returns `num_lanes` distinct 32-bit seeds; the first ones do not depend on `num_lanes`."""
    num_words = num_lanes
    while True:
        words = np.random.SeedSequence(seed).generate_state(num_words).tolist()
        distinct = list(dict.fromkeys(words))
        if len(distinct) >= num_lanes:
            return distinct[:num_lanes]
        num_words += num_lanes
