"""Alternating measurements: machines are noisy, so only ratios from one run mean anything."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping
from typing import Any, Callable

Measure = Callable[[], float]
"""Does a fixed amount of work once and returns its rate (things per second)."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the results.

    Attributes:
      name: The benchmark.
      case: What was varied.
      ours: Our median rate; of `memory` bytes and of some of `end_to_end` seconds, less is better.
      peer: The peer's, None where it cannot do the case.
      limit: The rate of the bare work, without any system around it; None where there is none.
      spread: Largest over smallest of our repetitions.
    """

    name: str
    case: str
    ours: float
    peer: float | None = None
    limit: float | None = None
    spread: float = 1.0

    @property
    def ratio_to_peer(self) -> float | None:
        return None if not self.peer else self.ours / self.peer

    @property
    def share_of_limit(self) -> float | None:
        return None if not self.limit else self.ours / self.limit

    def as_dict(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "ratio_to_peer": self.ratio_to_peer,
            "share_of_limit": self.share_of_limit,
        }


def alternate(
    measures: Mapping[str, Measure], repetitions: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Measures each in turn, `repetitions` times, after one round that does not count.

    Args:
      measures: By name.
      repetitions: Rounds that count.
      warm_up: Whether there is one that does not; of no use to measures that begin anew each time.
    """
    results: dict[str, list[float]] = {name: [] for name in measures}
    for measure in measures.values() if warm_up else ():
        measure()
    for _ in range(repetitions):
        for name, measure in measures.items():
            results[name].append(measure())
    return results


def row(name: str, case: str, results: Mapping[str, list[float]]) -> Row:
    """Medians of `alternate`'s results under the names "ours", "peer" and "limit"."""
    ours = results["ours"]
    return Row(
        name=name,
        case=case,
        ours=statistics.median(ours),
        peer=statistics.median(results["peer"]) if "peer" in results else None,
        limit=statistics.median(results["limit"]) if "limit" in results else None,
        spread=max(ours) / min(ours),
    )


def rate(
    work: Callable[[], int], seconds: float, finish: Callable[[], Any] | None = None
) -> Measure:
    """A measure that repeats `work`, which returns how many things it did, for some seconds.

    Args:
      work: Is repeated.
      seconds: For so long.
      finish: Called at the end, within the time that counts: waits for what is still under way.
    """

    def measure() -> float:
        done = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            done += work()
        if finish is not None:
            finish()
        return done / (time.perf_counter() - start)

    return measure


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| benchmark | case | ours | peer | limit | ours / peer | ours / limit | spread |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for line in rows:
        ratio = "" if line.ratio_to_peer is None else f"{_ratio(line.ratio_to_peer)} ×"
        share = "" if line.share_of_limit is None else f"{line.share_of_limit:.0%}"
        lines.append(
            f"| {line.name} | {line.case} | {_number(line.ours)} | {_number(line.peer)} | "
            f"{_number(line.limit)} | {ratio} | {share} | {line.spread:.2f} |"
        )
    return "\n".join(lines)


def _ratio(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
