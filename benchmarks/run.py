"""Runs the benchmarks, prints a table, writes benchmarks/results.json.

python -m benchmarks.run [--only collect,read] [--quick]

Each row is written as soon as it is measured and replaces the one of the same name and case; rows
that were not measured again are kept, and the table, which shows all, says so. The figures of
`--quick`, which only shows that everything runs, are written only where `--results` says.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import sys
import time

RESULTS = pathlib.Path(__file__).resolve().parent / "results.json"
MINUTES = {
    "collect": 2.0,
    "agents": 0.5,
    "turns": 5.0,
    "write": 3.0,
    "read": 2.5,
    "learn": 3.0,
    "memory": 4.0,
    "end_to_end": 17.0,
    "overlap": 1.5,
    "ring": 0.5,
    "inference": 1.5,
    "growth": 3.0,
    "tensor": 12.0,
    "jobs": 3.0,
    "learners": 1.0,
    "wire": 1.5,
    "startup": 1.5,
}
"""The benchmarks, and about how long each takes on two idle cores, with the peers' environment."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"some of {', '.join(MINUTES)}, with commas")
    parser.add_argument("--quick", action="store_true", help="only show that everything runs")
    parser.add_argument("--results", type=pathlib.Path, default=None, help="where to write")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(MINUTES)
    unknown = sorted(set(names) - set(MINUTES))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(MINUTES)}")
    path = arguments.results or (None if arguments.quick else RESULTS)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"warning: load average {busy:.1f}: something else is running, ratios may be off")
    if not arguments.quick:
        print(expected(names), flush=True)
    print(_measure(names, arguments.quick, path))
    if path is not None:
        print(f"written to {path}")
    return 0


def expected(names: list[str]) -> str:
    """How long these benchmarks take, so that nobody waits in vain."""
    each = ", ".join(f"{name} {MINUTES[name]:g}" for name in names)
    return f"expected minutes: {each}; {sum(MINUTES[name] for name in names):g} in all"


def _measure(names: list[str], quick: bool, path: pathlib.Path | None) -> str:
    """Runs the benchmarks; returns the table of all that is known."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import importlib

    from actor_learner.support import tensorflow_threads
    from benchmarks import results, settings

    # As our experiments with small networks have it; peers do not lose by it.
    tensorflow_threads.tensorflow_threads(per_operation=1)
    config = settings.Settings.quick() if quick else settings.Settings()
    known = results.Results(path, tuple(MINUTES))
    for name in names:
        began = time.perf_counter()
        cases = []
        for row in importlib.import_module(f"benchmarks.{name}").rows(config):
            known.add(row)
            cases.append(row.case)
            print(f"  {row.name}, {row.case}: {row.ours:,.0f}", file=sys.stderr, flush=True)
        known.complete(name, cases)
        minutes = (time.perf_counter() - began) / 60
        print(f"{name} took {minutes:.1f} minutes", file=sys.stderr, flush=True)
    return known.table()


if __name__ == "__main__":
    sys.exit(main())
