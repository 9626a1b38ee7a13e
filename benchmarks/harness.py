"""Alternating measurements: machines are noisy, so only ratios from one run mean anything."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

Measure = Callable[[], float]
"""Does a fixed amount of work once and returns its rate (things per second)."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the results.

    Attributes:
      name: The benchmark.
      case: What was varied; with the name it tells rows apart, so it is the same in every run.
      ours: Our median rate; of `memory` bytes and of some of `end_to_end` seconds, less is better.
      peer: The peer's, None where it cannot do the case.
      limit: The rate of the bare work, without any system around it; None where there is none.
      spread: Largest over smallest of our repetitions.
      note: What this run found or lacked besides, such as how many seeds reached the target.
    """

    name: str
    case: str
    ours: float
    peer: float | None = None
    limit: float | None = None
    spread: float = 1.0
    note: str = ""

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

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Row:
        """A row from what `as_dict` made of one; other keys are passed over."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in names})


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


def row(name: str, case: str, results: Mapping[str, list[float]], note: str = "") -> Row:
    """Medians of `alternate`'s results under the names "ours", "peer" and "limit"."""
    ours = results["ours"]
    return Row(
        name=name,
        case=case,
        ours=statistics.median(ours),
        peer=statistics.median(results["peer"]) if "peer" in results else None,
        limit=statistics.median(results["limit"]) if "limit" in results else None,
        spread=max(ours) / min(ours),
        note=note,
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


def table(rows: Sequence[Row], origins: Sequence[str] | None = None) -> str:
    """The rows as a Markdown table.

    Args:
      rows: In this order.
      origins: When each was measured, for a last column; None leaves it out.
    """
    head = "| benchmark | case | ours | peer | limit | ours / peer | ours / limit | spread |"
    rule = "|---|---|---:|---:|---:|---:|---:|---:|"
    if origins is not None:
        head, rule = f"{head} measured |", f"{rule}---|"
    lines = [head, rule]
    for index, line in enumerate(rows):
        case = f"{line.case} ({line.note})" if line.note else line.case
        ratio = "" if line.ratio_to_peer is None else f"{_ratio(line.ratio_to_peer)} ×"
        share = "" if line.share_of_limit is None else f"{line.share_of_limit:.0%}"
        text = (
            f"| {line.name} | {case} | {_number(line.ours)} | {_number(line.peer)} | "
            f"{_number(line.limit)} | {ratio} | {share} | {line.spread:.2f} |"
        )
        lines.append(text if origins is None else f"{text} {origins[index]} |")
    return "\n".join(lines)


def _ratio(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
