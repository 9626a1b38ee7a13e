"""Numbers as people read them: 12,345 · 1.2k/s · 1:05 · 0.0123."""

from __future__ import annotations

import math
from collections.abc import Mapping


def count(value: float) -> str:
    """A whole number with thousands separated: `12,345`."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """A quantity per second in at most six characters: `9.5/s`, `640/s`, `1.2k/s`, `3.4M/s`."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # 999.6 would round to "1000": from half a unit below, the next prefix is the right one.
        if abs(value) >= factor * 0.9995:
            return f"{_three_digits(value / factor)}{unit}/s"
    return f"{_three_digits(value)}/s"


def number(value: float) -> str:
    """A measurement with about four significant digits: `0.0123`, `21.57`, `12,345`, `1.2e-07`."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 1 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds like a clock: `0:07`, `12:34`, `1:02:03`, `2d 03:04:05`."""
    whole = max(0, int(round(seconds)))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02d}:{minutes:02d}:{rest:02d}"
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


def mean_and_std(mean: float, std: float | None = None) -> str:
    """`487.3 ± 12.1`, or `0.74 ± 0.44` where a decimal more is needed; `487.3` without a spread."""
    decimals = 1 if abs(mean) >= 10 or mean == 0 else 2
    text = f"{mean:,.{decimals}f}"
    return text if std is None else f"{text} ± {std:,.{decimals}f}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.1f}"


def shares(parts: Mapping[str, float]) -> str:
    """Shares of a whole by name: `52 % stepping, 31 % inferring, 17 % waiting`.

    Those that round to nothing are left out.
    """
    shown = [(round(100 * share), name) for name, share in parts.items()]
    return ", ".join(f"{percent} % {name}" for percent, name in shown if percent)
