"""One measurement of collecting in a tensor environment, in a process of its own.

python -m benchmarks.tensor_growth --lanes=2048 --seconds=3

Prints one line of JSON: steps per second of unrolls through Reverb's queue and of the bare graph
call, seconds until the first unroll is there (tracing and compiling), and the process's largest
memory in MB. A process each, since memory is never given back.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

from benchmarks import tensor_collect


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--world", choices=sorted(tensor_collect.WORLDS), default="CartPole")
    options = parser.parse_args()
    began = time.perf_counter()
    collector = tensor_collect.Collector(tensor_collect.tensor_env(options.world, options.lanes))
    collector.collect()
    compile_seconds = time.perf_counter() - began
    found = {
        "compile_seconds": compile_seconds,
        "steps_per_second": _rate(collector.collect, options.seconds),
        "bare_steps_per_second": _rate(collector.bare, options.seconds),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    collector.close()
    print(json.dumps(found), flush=True)


def _rate(work, seconds: float) -> float:
    work()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        done += work()
    return done / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
