"""`curve.png`: what a run, or several seeds of it, learned."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from actor_learner import run_directory
from actor_learner.reporting import jsonl
from actor_learner.reporting import logger as logger_lib
from actor_learner.support import atomic, disk_space, formatting, unsaved

if TYPE_CHECKING:
    from matplotlib import axes, figure

_RETURN = "#7a8aa6"
_EVALUATION = "#c2410c"
_TARGET = "#15803d"
_INK = "#1f2937"
_FAINT = "#d7dce5"
_LABELS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#b45309", "#0e7490")
_TOP_TICKS = 6
_GRID_POINTS = 400
_RESAMPLES = 1_000
_ENVIRONMENT_STEPS, _TRAIN_STEPS = "environment_steps", "train_steps"


def draw_run(run_dir: run_directory.RunDirectory, target_return: float | None = None) -> None:
    """Draws `curve.png` of a run from its `metrics.jsonl`; if the disk is full, once it is not."""

    def draw() -> None:
        if not run_dir.metrics_jsonl.exists():
            raise disk_space.full(run_dir.metrics_jsonl)
        rows = jsonl.read_rows(run_dir.metrics_jsonl)
        draw_curve(rows, run_dir.curve, run_dir.path.name, target_return)

    unsaved.ledger().attempt(run_dir.curve.name, draw, where=run_dir.curve)


def draw_curve(
    rows: Sequence[logger_lib.Row],
    path: str | os.PathLike,
    title: str,
    target_return: float | None = None,
) -> None:
    """Draws one run: the return while training, evaluations as mean ± std, and the target.

    The lower axis counts environment steps, or train steps where nothing is collected; the upper
    one shows the wall-clock time at which they were reached. Rows without a finished episode leave
    an empty, labelled picture. The file replaces an older one only when complete.
    """
    drawing, ax = _new_figure(title)
    counted = _counted(rows)
    steps, returns = _series(rows, "return", counted)
    evaluated_at, evaluations = _series(rows, "eval_return", counted)
    if steps.size:
        low_steps, low = _series(rows, "min_return", counted)
        high_steps, high = _series(rows, "max_return", counted)
        if np.array_equal(low_steps, high_steps) and low.size:
            ax.fill_between(low_steps, low, high, color=_RETURN, alpha=0.13, linewidth=0, zorder=1)
        ax.plot(
            steps, returns, color=_RETURN, linewidth=1.2, zorder=2, label="training (recent mean)"
        )
    if evaluated_at.size:
        chosen = _finite_rows(rows, "eval_return", counted)
        spread = np.array([float(row.get("eval_return_std", 0.0)) for row in chosen])
        ax.fill_between(
            evaluated_at,
            evaluations - spread,
            evaluations + spread,
            color=_EVALUATION,
            alpha=0.15,
            linewidth=0,
            zorder=3,
        )
        ax.errorbar(
            evaluated_at,
            evaluations,
            yerr=spread,
            color=_EVALUATION,
            linewidth=1.8,
            elinewidth=0.8,
            marker="o",
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            zorder=4,
            label="evaluation (mean ± std)",
        )
    _finish(ax, target_return, counted, empty=not steps.size and not evaluated_at.size)
    _add_time_axis(ax, rows, counted)
    _save(drawing, path)


def draw_seed_bands(
    runs: Mapping[str, Sequence[Sequence[logger_lib.Row]]],
    path: str | os.PathLike,
    title: str,
    target: float | None = None,
    *,
    value: str = "eval_return",
    intervals: bool = False,
) -> dict[str, tuple[int, float, float, float]]:
    """Draws, for each label, the median of `value` over seeds, with the band from worst to best.

    Args:
      runs: For each label, the rows of each seed.
      path: The file to write; it replaces an older one only when complete.
      title: Printed above.
      target: Drawn as a dashed line.
      value: The key to draw. Seeds that never report it are left out, and the legend says how many
        are drawn. A seed that ended early, as one that reached its target does, keeps its last
        value; a dot marks where it ended.
      intervals: Draw the mean and its 95 % bootstrap interval over seeds instead, and each seed as
        a thin line.

    Returns:
      For each label that has values: how many seeds, and centre, lower and upper end at the last
      step.
    """
    drawing, ax = _new_figure(title)
    drawn: dict[str, tuple[int, float, float, float]] = {}
    counted = _counted([row for seeds in runs.values() for rows in seeds for row in rows])
    for index, (label, seeds) in enumerate(runs.items()):
        series = [_series(rows, value, counted) for rows in seeds]
        series = [pair for pair in series if pair[0].size]
        if not series:
            continue
        color = _LABELS[index % len(_LABELS)]
        grid, values = _on_common_grid(series)  # [points], [seeds, points]
        seen = f"{len(series)} of {len(seeds)}" if len(series) < len(seeds) else str(len(seeds))
        noun = "seed" if len(seeds) == 1 else "seeds"
        if intervals:
            centre, (low, high) = values.mean(axis=0), _bootstrap_interval(values)
            for steps, returns in series if len(series) > 1 else ():
                ax.plot(steps, returns, color=color, linewidth=0.7, alpha=0.35, zorder=1)
        else:
            centre, low, high = np.median(values, axis=0), values.min(axis=0), values.max(axis=0)
        drawn[label] = (len(series), float(centre[-1]), float(low[-1]), float(high[-1]))
        ax.fill_between(grid, low, high, color=color, alpha=0.15, linewidth=0)
        ax.plot(
            grid,
            centre,
            color=color,
            linewidth=2.0,
            label=f"{label} ({seen} {noun})",
        )
        ends = np.array([(steps[-1], returns[-1]) for steps, returns in series])
        ax.plot(
            ends[:, 0],
            ends[:, 1],
            linestyle="none",
            marker="o",
            markersize=4.5,
            color=color,
            markeredgecolor="white",
            markeredgewidth=0.8,
            zorder=4,
        )
    _finish(
        ax,
        target,
        counted,
        empty=not drawn,
        y_label=_y_label(value),
        legend_title="mean, and 95 % bootstrap interval\n(thin: each seed; a dot where it ended)"
        if intervals
        else "median, and worst to best seed\n(a dot where a seed ended)",
    )
    _save(drawing, path)
    return drawn


def _bootstrap_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2.5 and 97.5 % quantiles of the mean over seeds drawn again; `values` is [seeds, points]."""
    generator = np.random.default_rng(0)  # The same picture each time.
    drawn = generator.integers(len(values), size=(_RESAMPLES, len(values)))
    means = np.stack([values[indices].mean(axis=0) for indices in drawn])
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return low, high


def _y_label(value: str) -> str:
    return {"eval_return": "evaluation return", "return": "return"}.get(value, value)


def _counted(rows: Sequence[logger_lib.Row]) -> str:
    """The steps that tell rows apart: recorded experience has no environment steps."""
    offline = not any(row.get(_ENVIRONMENT_STEPS) for row in rows)
    trained = any(row.get(_TRAIN_STEPS) for row in rows)
    return _TRAIN_STEPS if offline and trained else _ENVIRONMENT_STEPS


def _finite_rows(rows: Sequence[logger_lib.Row], key: str, counted: str) -> list[logger_lib.Row]:
    return [row for row in rows if key in row and counted in row and math.isfinite(float(row[key]))]


def _series(
    rows: Sequence[logger_lib.Row], key: str, counted: str
) -> tuple[np.ndarray, np.ndarray]:
    """The steps `counted` and the finite values of `key`, each [points]."""
    chosen = _finite_rows(rows, key, counted)
    steps = np.array([float(row[counted]) for row in chosen])
    return steps, np.array([float(row[key]) for row in chosen])


def _on_common_grid(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Interpolates each seed onto shared steps [points]; values [seeds, points].

    The grid starts where every seed has a value; beyond a seed's end its last value is kept.
    """
    start = max(steps[0] for steps, _ in series)
    end = max(steps[-1] for steps, _ in series)
    grid = np.linspace(start, end, _GRID_POINTS) if end > start else np.array([start])
    return grid, np.stack([np.interp(grid, steps, values) for steps, values in series])


def _new_figure(title: str) -> tuple[figure.Figure, axes.Axes]:
    from matplotlib import figure
    from matplotlib.backends import backend_agg

    # Without pyplot: no global state, no display, and nothing to close.
    drawing = figure.Figure(figsize=(8.0, 4.8), dpi=150, layout="constrained", facecolor="white")
    drawing.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    backend_agg.FigureCanvasAgg(drawing)
    ax = drawing.add_subplot()
    ax.set_title(title, loc="left", fontsize=13, fontweight="bold", color=_INK, pad=8)
    return drawing, ax


def _finish(
    ax: axes.Axes,
    target: float | None,
    counted: str,
    *,
    empty: bool,
    y_label: str = "return",
    legend_title: str | None = None,
) -> None:
    from matplotlib import ticker

    ax.set_xlabel(counted.replace("_", " "), color=_INK)
    ax.set_ylabel(y_label, color=_INK)
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short_count(value)))
    ax.grid(True, color=_FAINT, linewidth=0.6, zorder=0)
    ax.set_axisbelow(True)
    ax.tick_params(colors=_INK, labelsize=9, length=3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(_FAINT)
    if target is not None:
        ax.axhline(
            target,
            color=_TARGET,
            linestyle=(0, (5, 4)),
            linewidth=1.3,
            zorder=1.5,
            label=f"target {target:g}",
        )
    if empty:
        ax.set_xlim(0, 1)
        ax.set_xticks([])
        if target is None:
            ax.set_yticks([])
        else:
            margin = 0.15 * max(1.0, abs(target))
            ax.set_ylim(min(0.0, target) - margin, max(0.0, target) + margin)
        ax.text(
            0.5,
            0.4,
            "no finished episode yet",
            transform=ax.transAxes,
            ha="center",
            va="center",
            color=_RETURN,
            fontsize=12,
        )
    else:
        ax.set_xlim(left=0)
        ax.margins(x=0.02)
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        order = sorted(range(len(labels)), key=lambda i: labels[i].startswith("target "))
        ax.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="best",
            title=None if empty else legend_title,
            title_fontproperties={"size": 8},
            alignment="left",
            fontsize=9,
            labelcolor=_INK,
            framealpha=0.9,
            edgecolor=_FAINT,
        )


def _add_time_axis(ax: axes.Axes, rows: Sequence[logger_lib.Row], counted: str) -> None:
    """Marks on the upper edge the wall-clock times at which steps were reached."""
    steps, seconds = _series(rows, "seconds", counted)
    if steps.size < 2 or seconds[-1] <= seconds[0]:
        return
    ticks = _round_times(seconds[-1])
    ticks = ticks[ticks >= seconds[0]]
    top = ax.secondary_xaxis("top")
    top.set_xticks(
        np.interp(ticks, seconds, steps), labels=[formatting.duration(tick) for tick in ticks]
    )
    top.tick_params(colors=_RETURN, labelsize=8, length=3, pad=1)
    top.spines["top"].set_visible(False)
    top.set_xlabel("wall-clock time", fontsize=8, color=_RETURN, loc="left", labelpad=2)


def _round_times(total: float) -> np.ndarray:
    """At most `_TOP_TICKS` evenly spaced times up to `total` seconds, round on a clock."""
    steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200]
    step = next((s for s in steps if total / s <= _TOP_TICKS), None)
    if step is None:
        step = 86400 * math.ceil(total / 86400 / _TOP_TICKS)
    return np.arange(step, total + 1e-9, step, dtype=float)


def _short_count(value: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def _save(drawing: figure.Figure, path: str | os.PathLike) -> None:
    with atomic.replacing(path) as temporary:
        drawing.savefig(temporary, format="png")
