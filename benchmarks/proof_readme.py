"""The README's table of ready-made configurations, filled in from the results of the proofs."""

from __future__ import annotations

import re

from benchmarks import proof_table, proofs

_ROW = re.compile(r"^\| `(\w+)\.gin`")
_FIXED = 2  # Columns that people write: the file, with its notes, and what it reaches.


def rows(readme: str, results: proof_table.Results) -> list[str]:
    """The table's rows; one is left as it is where a proof's results are not all there.

    Args:
      readme: Text of the README.
      results: Of all proofs, by name and seed.
    """
    found = []
    for line in readme.splitlines():
        match = _ROW.match(line)
        if match:
            found.append(_filled_in(line, match[1], results))
    return found


def _filled_in(line: str, name: str, results: proof_table.Results) -> str:
    proof = proofs.PROOFS.get(name)
    if proof is None:
        return line
    runs = [results.get((name, seed)) for seed in range(proof.seeds)]
    if any(run is None or run.get("error") for run in runs):
        return line
    fixed = [cell.strip() for cell in line.strip().strip("|").split("|")[:_FIXED]]
    seconds = [run["seconds"] for run in runs]
    low, middle, high = min(seconds), proofs.median(runs, "seconds"), max(seconds)
    spread = "" if round(low) == round(high) else f" ({low:.0f}–{high:.0f})"
    cells = [
        *fixed,
        f"{sum(run['reached'] for run in runs)} of {len(runs)} seeds",
        proof_table.interval(runs),
        f"{round(proofs.median(runs, 'environment_steps'), -3):,}",
        f"{middle:.0f}{spread}",
    ]
    return f"| {' | '.join(cells)} |"
