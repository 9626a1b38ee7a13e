"""Runs the benchmarks, prints a table, writes benchmarks/results.json.

python -m benchmarks.run [--only collect,read] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import sys

RESULTS = pathlib.Path(__file__).resolve().parent / "results.json"
NAMES = ("collect", "write", "read", "learn", "memory", "end_to_end", "growth", "jobs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"some of {', '.join(NAMES)}, with commas")
    parser.add_argument("--quick", action="store_true", help="only show that everything runs")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="where to write")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"warning: load average {busy:.1f}: something else is running, ratios may be off")
    rows = _measure(names, arguments.quick)
    from benchmarks import harness

    print(harness.table(rows))
    arguments.results.write_text(json.dumps([row.as_dict() for row in rows], indent=2) + "\n")
    print(f"written to {arguments.results}")
    return 0


def _measure(names: list[str], quick: bool) -> list:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import importlib

    from actor_learner import tensorflow_threads
    from benchmarks import settings

    # As our experiments with small networks have it; peers do not lose by it.
    tensorflow_threads.tensorflow_threads(per_operation=1)
    config = settings.Settings.quick() if quick else settings.Settings()
    rows = []
    for name in names:
        for row in importlib.import_module(f"benchmarks.{name}").rows(config):
            rows.append(row)
            print(f"  {row.name}, {row.case}: {row.ours:,.0f}", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
