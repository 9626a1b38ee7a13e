"""A league as a picture: ratings over time, and who beats whom."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actor_learner.league import payoff
from actor_learner.support import atomic

_MOST_NAMES = 24


def draw(
    path: str | os.PathLike,
    title: str,
    table: payoff.PayoffTable,
    ratings: Mapping[str, float],
    steps: Mapping[str, int],
) -> None:
    """Writes a PNG: Elo ratings on the left, the share of points of each pair on the right.

    Args:
      path: Where to; replaced as a whole.
      title: Of the picture.
      table: Who has played whom.
      ratings: By player.
      steps: Environment steps at which players joined; those without are drawn as lines.
    """
    from matplotlib.backends import backend_agg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    backend_agg.FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    # By when they joined; those who never did last.
    ordered = sorted(ratings, key=lambda name: steps.get(name, math.inf))
    _draw_ratings(left, {name: ratings[name] for name in ordered}, steps)
    _draw_scores(figure, right, table, ordered)
    with atomic.replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def scores(table: payoff.PayoffTable, players: Sequence[str]) -> np.ndarray:
    """Points per game of each player against each, `[players, players]`; NaN where none met."""
    found = np.full((len(players), len(players)), np.nan)
    for row, one in enumerate(players):
        for column, other in enumerate(players):
            record = table.against(one, other)
            if record.games and one != other:
                found[row, column] = record.score / record.games
    return found


def _draw_ratings(axes: Any, ratings: Mapping[str, float], steps: Mapping[str, int]) -> None:
    joined = [name for name in ratings if name in steps]
    axes.plot(
        [steps[name] for name in joined], [ratings[name] for name in joined], "o-", markersize=4
    )
    for name in ratings:
        if name not in steps:
            axes.axhline(ratings[name], linestyle=":", color="grey")
            axes.annotate(name, (0.01, ratings[name]), xycoords=("axes fraction", "data"))
    axes.set_xlabel("environment steps when it joined")
    axes.set_ylabel("Elo rating")
    axes.grid(alpha=0.3)


def _draw_scores(figure: Any, axes: Any, table: payoff.PayoffTable, names: list[str]) -> None:
    image = axes.imshow(scores(table, names), vmin=0.0, vmax=1.0, cmap="RdYlGn")
    figure.colorbar(image, ax=axes, label="points per game of the row's player")
    shown = range(0, len(names), max(1, -(-len(names) // _MOST_NAMES)))
    axes.set_xticks(list(shown), [names[i] for i in shown], rotation=90, fontsize=7)
    axes.set_yticks(list(shown), [names[i] for i in shown], fontsize=7)
    axes.set_xlabel("opponent")
