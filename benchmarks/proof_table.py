"""How the results of learning proofs are judged and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import interquartile, proofs

Results = Mapping[tuple[str, int], dict]

_HEAD = (
    "| proof | verdict | seeds | target | return (IQM, 95 % interval) | steps (median) "
    "| seconds (median, range) | other seeds |",
    "|---|---|---|---:|---|---:|---|---|",
)


class Comparison(NamedTuple):
    """Whether one configuration is no slower than another, and the sentence that says so."""

    holds: bool
    text: str


def line(row: dict) -> str:
    """One run's result, on one line."""
    head = f"{row['config']:20} seed {row['seed']}  {_outcome(row):12} {row['target']:8.2f}"
    if row.get("error"):
        return f"{head}  {row['error'].splitlines()[0]}"
    text = (
        f"{head}  best {row['best_return']:7.2f}  fresh {row['fresh_return']:7.2f}  "
        f"{row['environment_steps']:9,} steps  {row['seconds']:7.1f} s"
    )
    return f"{text}  (older code)" if proofs.of_older_code(row) else text


def holds(name: str, results: Results) -> bool:
    """Whether enough of a proof's seeds have succeeded, and none has crashed."""
    rows = _rows(name, results)
    enough = sum(row["succeeded"] for row in rows) >= proofs.PROOFS[name].needed
    return enough and not any(row.get("error") for row in rows)


def table(names: list[str], results: Results) -> str:
    """The proofs as a Markdown table."""
    return "\n".join([*_HEAD, *(_table_line(name, _rows(name, results)) for name in names)])


def interval(rows: Sequence[dict]) -> str:
    """Interquartile mean over seeds, with its 95 % interval, of the best policies' returns.

    They are rated once more by the command `eval`, on episodes that neither chose nor confirmed
    them, so that nothing was selected by these figures.
    """
    found = interquartile.with_interval([row["fresh_return"] for row in rows])
    decimals = 0 if abs(found.mean) >= 100 else 1 if abs(found.mean) >= 10 else 2
    mean, low, high = (f"{value:.{decimals}f}" for value in found)
    return f"{mean} [{low}, {high}]"


def comparisons(names: list[str], results: Results, *, keep: bool) -> list[Comparison]:
    """What `proofs.NO_SLOWER` asks, where all runs of both are there and one of both was asked for.

    Args:
      names: Proofs that were asked for.
      results: Of all proofs.
      keep: Results of older code count.
    """
    found = []
    for fast, slow in proofs.NO_SLOWER:
        rows = [[results.get((name, seed)) for seed in range(proofs.PROOFS[name].seeds)]
                for name in (fast, slow)]  # fmt: skip
        there = all(proofs.counts(row, keep=keep) for some in rows for row in some)
        if not there or not {fast, slow} & set(names):
            continue
        ours, theirs = (proofs.median(some, "environment_steps") for some in rows)
        verdict = "proved" if ours <= theirs else "FAILED"
        found.append(
            Comparison(
                ours <= theirs,
                f"{verdict}: {fast} needs no more environment steps than {slow} (medians "
                f"{ours:,} and {theirs:,})",
            )
        )
    return found


def _rows(name: str, results: Results) -> list[dict]:
    return [results[name, seed] for seed in range(proofs.PROOFS[name].seeds)]


def _outcome(row: dict) -> str:
    if row.get("error"):
        return "crashed"
    if proofs.PROOFS[row["config"]].control:
        return "REACHED" if row["reached"] else "stays below"
    return "reached" if row["reached"] else "missed"


def _table_line(name: str, rows: list[dict]) -> str:
    proof = proofs.PROOFS[name]
    done = [row for row in rows if not row.get("error")]
    verdict = "proved" if holds(name, {(name, row["seed"]): row for row in rows}) else "FAILED"
    if verdict == "proved" and not proof.needed:
        verdict = "for comparison"
    notes = []
    if len(done) < len(rows):
        notes.append(f"{len(rows) - len(done)} crashed")
    older = sum(proofs.of_older_code(row) for row in done)
    if older:
        notes.append(f"{older} by older code")
    succeeded = sum(row["succeeded"] for row in rows)
    verb = "stay below" if proof.control else "reach"
    seeds = f"{succeeded} of {len(rows)} {verb} it"
    returns = steps = seconds = again = ""
    if done:
        times = [row["seconds"] for row in done]
        returns = interval(done)
        steps = f"{proofs.median(done, 'environment_steps'):,}"
        seconds = f"{proofs.median(done, 'seconds'):.0f} ({min(times):.0f} to {max(times):.0f})"
        again = f"{sum(row['fresh_holds'] for row in done)} still do"
    verdict = f"{verdict} ({', '.join(notes)})" if notes else verdict
    cells = (name, verdict, seeds, f"{proof.target:g}", returns, steps, seconds, again)
    return f"| {' | '.join(cells)} |"
