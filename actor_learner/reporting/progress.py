"""How far a run is, put together from its rows: what every live view shows."""

from __future__ import annotations

import collections

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import formatting

NOT_SAVED = "not_saved"
"""Key of what a full disk keeps from being saved, in words; empty if nothing."""

_TIMES = {
    "actor": ("stepping", "inferring", "writing", "waiting"),
    "learner": ("training", "sampling", "waiting"),
}

_RATE_WINDOW_SECONDS = 60.0  # Long enough to be steady, short enough to follow a change of pace.


class Progress:
    """Merges rows into the latest value of each metric, the best policy's score and the time left.

    `latest` and `best` are replaced, never changed in place, so another thread may read them while
    rows arrive. `best` has the columns `best_return`, ... of the latest row with a score of the
    best policy; it may be given to continue an earlier run.
    """

    def __init__(self, total_environment_steps: int | None, *, best: logger_lib.Row | None = None):
        self.total_environment_steps = total_environment_steps
        self.latest: dict[str, logger_lib.Value] = {}
        self.best = best
        # (seconds, environment steps) of the last minute.
        self._recent: collections.deque[tuple[float, float]] = collections.deque()

    def update(self, row: logger_lib.Row) -> None:
        row = logger_lib.plain_row(row)
        self.latest = {**self.latest, **row}
        if "best_return" in row:
            self.best = row
        if "seconds" in row and "environment_steps" in row:
            self._recent.append((row["seconds"], row["environment_steps"]))
            while self._recent[0][0] < row["seconds"] - _RATE_WINDOW_SECONDS:
                self._recent.popleft()

    @property
    def fraction(self) -> float | None:
        """Part of the environment steps done, in [0, 1]; None while it cannot be known."""
        if not self.total_environment_steps or "environment_steps" not in self.latest:
            return None
        return min(1.0, self.latest["environment_steps"] / self.total_environment_steps)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the last minute; None while there is no pace or no end."""
        if self.fraction is None:
            return None
        if self.fraction == 1.0:
            return 0.0
        pace = self._pace()
        if not pace or pace < 0:
            return None
        return (self.total_environment_steps - self.latest["environment_steps"]) / pace

    def _pace(self) -> float | None:
        if len(self._recent) > 1:
            (first_seconds, first_steps), (seconds, steps) = self._recent[0], self._recent[-1]
            if seconds > first_seconds:
                return (steps - first_steps) / (seconds - first_seconds)
        return self.latest.get("environment_steps_per_second")

    def metrics(self) -> list[tuple[str, str]]:
        """(name, value) of each metric that is known, formatted, in the order of reading."""
        latest = self.latest
        shown = []
        if latest.get(NOT_SAVED):
            name, _, text = latest[NOT_SAVED].partition(": ")
            shown.append((name, text))
        for name, key, rate_key in (
            ("environment steps", "environment_steps", "environment_steps_per_second"),
            ("train steps", "train_steps", "train_steps_per_second"),
        ):
            if key in latest:
                text = formatting.count(latest[key])
                if rate_key in latest:
                    text += f", {formatting.rate(latest[rate_key])}"
                shown.append((name, text))
        for name, key, form in (
            ("return", "return", formatting.number),
            ("episode length", "episode_length", formatting.number),
            ("loss", "loss", formatting.number),
            ("epsilon", "epsilon", formatting.number),
            ("replay size", "replay_size", formatting.count),
            ("samples/insert", "samples_per_insert", formatting.number),
            ("sample age", "version_lag", _train_steps),
            ("skipped steps", "skipped_steps", formatting.number),
        ):
            if key in latest:
                shown.append((name, form(latest[key])))
        for who, kinds in _TIMES.items():
            shares = {kind: latest[key] for kind in kinds if (key := f"{who}_{kind}") in latest}
            if shares:
                shown.append((f"{who}'s time", formatting.shares(shares)))
        if self.best is not None:
            shown.append(("best policy", best_policy(self.best)))
        return shown


def _train_steps(number: float) -> str:
    """Of replay any age is in order: so in words, not as a gauge that seems to rise without end."""
    return f"{formatting.count(round(number))} train steps"


def best_policy(best: logger_lib.Row) -> str:
    """`487.3 ± 12.1 at 24,000`."""
    text = formatting.mean_and_std(best["best_return"], best.get("best_return_std"))
    if "best_environment_steps" in best:
        text += f" at {formatting.count(best['best_environment_steps'])}"
    return text
