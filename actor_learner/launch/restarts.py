"""Decides when a job that has failed is restarted, and when to give up."""

from __future__ import annotations

import collections
import dataclasses

from actor_learner.support import errors


@dataclasses.dataclass(frozen=True)
class RestartPolicy:
    """How often, and how soon, a job that has failed is restarted.

    The n-th restart in a row waits `first_delay * 2**(n - 1)` seconds, at most `max_delay`.

    Attributes:
      max_restarts: Restarts within `window_seconds`; one more failure is final. 0: none at all.
      window_seconds: Older restarts do not count.
      healthy_seconds: A job that ran this long has recovered: earlier restarts do not count.
      first_delay: Seconds before the first restart.
      max_delay: Seconds before any restart, at most.
    """

    max_restarts: int = 5
    window_seconds: float = 600.0
    healthy_seconds: float = 120.0
    first_delay: float = 1.0
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        if self.max_restarts < 0 or min(self.first_delay, self.max_delay) < 0:
            raise errors.ConfigError(f"a restart policy must not have negative numbers: {self}")


class RestartHistory:
    """The restarts of one job.

    Attributes:
      total: How often it has been restarted since the launcher began.
    """

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._recent: collections.deque[float] = collections.deque()
        self.total = 0

    @property
    def in_a_row(self) -> int:
        """Restarts that count against the policy's cap."""
        return len(self._recent)

    def next_delay(self, now: float, ran_seconds: float) -> float | None:
        """Seconds to wait before the next restart, which is noted; None to give up.

        Args:
          now: The time, in seconds of any clock.
          ran_seconds: How long the job has run this time.
        """
        policy = self._policy
        if ran_seconds >= policy.healthy_seconds:
            self._recent.clear()
        while self._recent and self._recent[0] <= now - policy.window_seconds:
            self._recent.popleft()
        if len(self._recent) >= policy.max_restarts:
            return None
        self._recent.append(now)
        self.total += 1
        return min(policy.first_delay * 2 ** (len(self._recent) - 1), policy.max_delay)
