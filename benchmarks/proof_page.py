"""The page of results and the README's rows, made from the records of the proofs.

A row whose proof has no complete record, of whatever code, is left as it is, so that one proof can
be repeated without all the others. Nobody types figures: `--readme` writes them.
"""

from __future__ import annotations

import pathlib
import re

from benchmarks import proof_table, proofs, published

PAGE, README = pathlib.Path("docs") / "results.md", pathlib.Path("README.md")
CURVES = pathlib.Path("docs") / "images" / "curves"

_ROW = re.compile(r"^\| `(\w+)(?:\.gin)?`")
_FIXED = 2  # Columns that do not come from records: the file, and what it reaches.
_NOT_MEASURED = "not measured yet"
_HEAD = (
    "| {what} | reaches | on | return on other episodes: interquartile mean [95 % interval] "
    "| environment steps (median) | seconds of training (median) |",
    "|---|---|---|---|---|---|",
)
_GROUPS = (
    ("Off-policy", proofs.OFF_POLICY),
    ("On-policy", proofs.ON_POLICY),
    ("With memory", proofs.RECURRENT),
    ("From recorded experience", proofs.OFFLINE),
    ("As separate jobs", proofs.JOBS),
    ("With actions from a policy job", proofs.REMOTE),
)
_TOP = """\
# What the leaves reach

<!-- `python -m benchmarks.learning_proofs --readme` writes this page from the records of `make
learn`: do not edit it. -->

Whole trainings of the ready-made configurations, each on several seeds, on two CPU cores. A seed
counts if an evaluation reaches the target and a second one, on other episodes, confirms it
([Evaluation](evaluation.md)). Returns are those of the best policies on further episodes, which
neither chose nor confirmed them: the interquartile mean over seeds with a 95 % bootstrap interval,
as [rliable](https://arxiv.org/abs/2108.13264) reports it. `make learn ONLY=dqn_cartpole` repeats
one, `ONLY=recurrent` a group (`off_policy`, `on_policy`, `recurrent`, `offline`, `jobs`, `remote`).
Other work ran on the machine meanwhile: seconds are upper bounds.
"""
_BOTTOM = """\
## Starting points

`ppo_atari`, `r2d2_atari` (extra atari), `ppo_hopper` and `sac_halfcheetah` (extra mujoco) run, and
nobody has trained them to the end.
"""


def write(root: pathlib.Path, results: proof_table.Results) -> list[str]:
    """Rewrites the page and the README's rows; returns the rows of the page.

    Args:
      root: The checkout.
      results: Of all proofs, by name and seed.
    """
    page = root / PAGE
    page.write_text(render(page.read_text() if page.exists() else "", results, root))
    readme = root / README
    readme.write_text(_with_rows(readme.read_text(), results))
    return [line for line in page.read_text().splitlines() if _ROW.match(line)]


def render(earlier: str, results: proof_table.Results, root: pathlib.Path) -> str:
    """The whole page.

    Args:
      earlier: The page as it was; rows without records are taken from it.
      results: Of all proofs.
      root: The checkout, whose curves are shown where there are any.
    """
    kept = {match[1]: line for line in earlier.splitlines() if (match := _ROW.match(line))}
    parts = [_TOP]
    for title, group in _GROUPS:
        names = [name for name, proof in proofs.PROOFS.items() if proof.group == group]
        if not names:
            continue
        rows = [_row(name, kept.get(name), results) for name in names]
        head = _HEAD[0].format(what="proof" if group in (proofs.JOBS, proofs.REMOTE) else "file")
        parts.append("\n".join([f"## {title}\n", head, _HEAD[1], *rows, ""]))
        shown = [name for name in names if (root / CURVES / f"{name}.png").exists()]
        if shown:
            images = [f"![{name}](images/curves/{name}.png){{ .curve }}" for name in shown]
            parts.append("\n".join([*images, ""]))
    return "\n".join([*parts, published.section(), _BOTTOM])


def task(name: str) -> str:
    """What a proof asks for, in words."""
    proof = proofs.PROOFS[name]
    world = proofs.WORLDS.get(name, name)
    if proof.group == proofs.RECURRENT:
        verb = "stays below" if proof.control else "reaches"
        asked = (
            f"{verb} {proof.target:.0%} right answers over {proof.fresh_episodes:,} greedy episodes"
        )
    else:
        asked = f"mean return ≥ {proof.target:g} over {proof.fresh_episodes} greedy episodes"
    return f"{world}: {asked}"


def _row(name: str, kept: str | None, results: proof_table.Results) -> str:
    proof = proofs.PROOFS[name]
    is_leaf = (proofs.ROOT / "gin" / f"{name}.gin").exists() and not proof.actors
    fixed = [f"`{name}.gin`" if is_leaf else f"`{name}`", task(name)]
    found = _figures(name, results)
    if found is None and kept is not None:
        found = _cells(kept)[_FIXED:]
    return _line([*fixed, *(found or [_NOT_MEASURED, "", "", ""])])


def _with_rows(text: str, results: proof_table.Results) -> str:
    """The README with those of its rows that have records filled in; its words stay."""
    lines = []
    for line in text.splitlines():
        match = _ROW.match(line)
        found = _figures(match[1], results) if match else None
        lines.append(line if found is None else _line([*_cells(line)[:_FIXED], *found]))
    return "\n".join(lines) + "\n"


def _figures(name: str, results: proof_table.Results) -> list[str] | None:
    """The measured columns; None where a seed is missing or has crashed."""
    proof = proofs.PROOFS.get(name)
    if proof is None:
        return None
    runs = [results.get((name, seed)) for seed in range(proof.seeds)]
    if any(run is None or run.get("error") for run in runs):
        return None
    seconds = [run["seconds"] for run in runs]
    low, middle, high = min(seconds), proofs.median(runs, "seconds"), max(seconds)
    spread = "" if round(low) == round(high) else f" ({low:.0f}–{high:.0f})"
    return [
        f"{sum(run['succeeded'] for run in runs)} of {len(runs)} seeds",
        proof_table.interval(runs),
        f"{round(proofs.median(runs, 'environment_steps'), -3):,}",
        f"{middle:.0f}{spread}",
    ]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
