"""Soaks every sample stream: does anything grow while a run goes on and on?

    python -m benchmarks.soak --seconds=180 --only=LaneReplay,UnrollQueue

Each case runs in processes of its own, in one or as jobs, with a replay so small that it is full
within seconds. After a warm-up, memory, descriptors and threads of every process and the files of
the run are sampled once a second; what is reported are their slopes, by least squares,
with a 95 % interval. Exit code 1 if anything of ours grows.

Memory is looked at twice. Resident memory is what the system sees; it moves in steps of megabytes
whenever an allocator takes pages or gives them back, so that minutes tell little of its slope. The
heap is what is in use of it, as glibc counts (2.33 or later is needed): TensorFlow, NumPy, Reverb
and large objects of Python. Small objects are blocks of Python's own allocator.

TensorFlow 2.15 on Python 3.11 leaks 48 bytes per eager tensor (tensorflow#62551). Every leaked
tensor is one such block, so that the leak is counted, stated, and taken off the resident memory.
Python 3.9 and 3.10 do not leak; there nothing is taken off, and growing numbers of blocks
are objects of ours. Slopes of memory, unlike
timings, hold on a busy machine too, where there are only fewer steps to a minute.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks import slopes, soak_cases

PROBE = pathlib.Path(__file__).with_name("soak_probe")
TENSOR_BYTES = 48
LEAKS = sys.version_info[:2] >= (3, 11)

# What may grow and is not a leak: noise that neither warm-up nor interval takes away.
TOLERATED = {  # Per minute.
    "resident": 0.5e6,
    "heap": 0.1e6,
    "descriptors": 0.5,
    "threads": 0.5,
    "blocks": 600.0,
}
START_SECONDS = 600.0
MINUTE, MILLION = 60.0, 1e6

Series = dict[str, list[tuple[float, float]]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=180.0, help="sampled, per case")
    parser.add_argument(
        "--warm_up",
        type=float,
        default=90.0,
        help="seconds before that, from the first train step on",
    )
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--ways", default="", help="'one process', 'jobs' or both, with commas")
    parser.add_argument("--output", help="a file for the table")
    arguments = parser.parse_args(argv)
    names, ways = _list(arguments.only), _list(arguments.ways)
    unknown = set(names) - {case.name for case in soak_cases.CASES}
    if unknown:
        parser.error(f"--only: no such case: {', '.join(sorted(unknown))}")
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        parser.error("a soak asks glibc how much memory is in use: version 2.33 or later is needed")
    lines = [
        "| stream, process | steps per minute | TensorFlow's leak, kB per minute | MB per million "
        "steps | heap, kB per minute | resident without the leak, kB per minute | descriptors | "
        "threads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    grown: list[str] = []
    files = [
        "| run | log | TensorBoard | metrics | other files | number of files |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        root = pathlib.Path(directory)
        for case in soak_cases.CASES:
            if names and case.name not in names:
                continue
            recorded = _record(root) if case.recorded else None
            for way in case.ways:
                if ways and way not in ways:
                    continue
                print(f"soaking {case.name}, {way} ...", file=sys.stderr, flush=True)
                run = root / f"{case.name}-{way.replace(' ', '-')}"
                try:
                    samples = _soak(case, way, run, arguments, recorded)
                except RuntimeError as error:
                    grown.append(f"{case.name}, {way}, could not be soaked: {error}")
                else:
                    lines += _rows(case, way, samples, grown)
                    files.append(_file_row(f"{case.name}, {way}", samples))
                shutil.rmtree(run, ignore_errors=True)
                text = _report(lines, files, grown)
                if arguments.output:  # After every case: a soak takes an hour.
                    pathlib.Path(arguments.output).write_text(text)
    print(text)
    return 1 if grown else 0


def _report(lines: list[str], files: list[str], grown: list[str]) -> str:
    verdict = [f"GROWS: {what}" for what in grown] or ["Nothing of ours grows."]
    return "\n".join([*lines, "", "Bytes per minute:", "", *files, "", *verdict, ""])


class Samples:
    """What was seen of one run: series over seconds, by process and quantity.

    Attributes:
      processes: By kind of process, its series.
      files: By kind of file, their bytes; `number` is how many files there are.
      steps: Environment steps (train steps, where none are taken).
    """

    def __init__(self) -> None:
        self.processes: dict[str, Series] = collections.defaultdict(
            lambda: collections.defaultdict(list)
        )
        self.files: Series = collections.defaultdict(list)
        self.steps: list[tuple[float, float]] = []

    def take(self, now: float, root_pid: int, run: pathlib.Path, notes: pathlib.Path) -> None:
        """Looks at the processes below `root_pid`, and at the files of the run."""
        for name, pid in _processes(root_pid):
            with contextlib.suppress(OSError, ValueError, IndexError):
                for key, value in _look_at(pid, notes).items():
                    self.processes[name][key].append((now, value))
        for kind, value in _look_at_files(run).items():
            self.files[kind].append((now, value))
        row = _last_row(run)
        self.steps.append((now, row["environment_steps"] or row["train_steps"]))


def _soak(
    case: soak_cases.Case,
    way: str,
    run: pathlib.Path,
    arguments: argparse.Namespace,
    recorded: pathlib.Path | None,
) -> Samples:
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="soak-notes-") as notes:
        with _running(_command(case, way, run, recorded), notes) as process:
            _wait_for_training(process, run)
            began = time.monotonic()
            seconds = 0.0
            while seconds < arguments.warm_up + arguments.seconds:
                time.sleep(1.0)
                _require_alive(process, run)
                seconds = time.monotonic() - began
                if seconds >= arguments.warm_up:
                    samples.take(seconds, process.pid, run, pathlib.Path(notes))
    return samples


def _wait_for_training(process: subprocess.Popen, run: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _last_row(run).get("train_steps"):
        _require_alive(process, run)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{run.name} has taken no train step within {START_SECONDS:g} s")
        time.sleep(1.0)


def _require_alive(process: subprocess.Popen, run: pathlib.Path) -> None:
    if process.poll() is None:
        return
    last = []
    for log in sorted(run.glob("jobs/*/log")):
        last += [f"{log.parent.name}:", *log.read_text(errors="replace").splitlines()[-10:]]
    raise RuntimeError("\n".join([f"it ended with {process.returncode}", *last]))


def _command(
    case: soak_cases.Case, way: str, run: pathlib.Path, recorded: pathlib.Path | None
) -> list[str]:
    kind = ["up", "--actors=1", "--evaluators=0"] if way == soak_cases.JOBS else ["train"]
    bindings = [binding.replace("{recorded}", str(recorded)) for binding in case.bindings]
    return [
        *(sys.executable, "-m", "actor_learner.cli", *kind),
        *(f"--gin_file={case.leaf}.gin", f"--run_dir={run}", "--seed=1"),
        *(f"--gin_param={binding}" for binding in bindings),
    ]


@contextlib.contextmanager
def _running(command: list[str], notes: str) -> Iterator[subprocess.Popen]:
    path = os.pathsep.join(filter(None, [str(PROBE), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SOAK_NOTES": notes, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _record(root: pathlib.Path) -> pathlib.Path:
    """Records some experience of CartPole, once."""
    run = root / "recorded"
    if not run.exists():
        subprocess.run(
            [
                *(sys.executable, "-m", "actor_learner.cli", "train"),
                *("--gin_file=dqn_cartpole.gin", f"--run_dir={run}", "--seed=1"),
                "--gin_param=Experiment.record = True",
                "--gin_param=Experiment.environment_steps = 5_000",
                "--gin_param=Evaluation.interval = 0",
                "--gin_param=Evaluation.target_return = None",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return run


def _processes(root_pid: int) -> list[tuple[str, int]]:
    """The processes below one, itself included, each named after what it runs."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(stat.rsplit(")", 1)[1].split()[1])
    found: dict[str, int] = {}
    generation = [root_pid]
    while generation:
        for pid in generation:
            with contextlib.suppress(OSError):
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                name = _process_name(command)
                if name is not None:
                    found[name] = pid  # A forked guardian bears the name of its child, the job.
        generation = [child for child, parent in parents.items() if parent in generation]
    return list(found.items())


def _process_name(command: list[str]) -> str | None:
    if any(part.endswith("guardian.py") for part in command):
        return None  # Holds nothing but a pipe.
    for program in ("actor_learner.jobs.main", "actor_learner.cli"):
        if program in command:
            return command[command.index(program) + 1]
    return None


def _look_at(pid: int, notes: pathlib.Path) -> dict[str, float]:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    blocks, heap = (notes / str(pid)).read_text().split()
    return {
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "heap": float(heap),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "blocks": float(blocks),
    }


def _look_at_files(run: pathlib.Path) -> dict[str, float]:
    sizes = {"log": 0.0, "TensorBoard": 0.0, "metrics": 0.0, "other": 0.0, "number": 0.0}
    for directory, _, names in os.walk(run):
        for name in names:
            with contextlib.suppress(OSError):
                size = os.stat(os.path.join(directory, name)).st_size
                sizes[_file_kind(name)] += size
                sizes["number"] += 1
    return sizes


def _file_kind(name: str) -> str:
    if name == "log" or name.startswith("log."):
        return "log"
    if name.startswith("events.out"):
        return "TensorBoard"
    return "metrics" if name.startswith("metrics.") else "other"


def _last_row(run: pathlib.Path) -> dict:
    """The last complete line of metrics; empty before the first."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            return json.loads(file.read().rsplit(b"\n", 2)[-2])
    except (OSError, ValueError, IndexError):
        return {}


def _rows(case: soak_cases.Case, way: str, samples: Samples, grown: list[str]) -> list[str]:
    steps_per_minute = _slope(samples.steps).value
    rows = []
    for name, series in sorted(samples.processes.items()):
        blocks = _slope(series["blocks"])
        leak = blocks.value * TENSOR_BYTES if LEAKS else 0.0
        shown = {
            "heap": _slope(series["heap"]),
            "resident": slopes.Slope(*(end - leak for end in _slope(series["resident"]))),
            "descriptors": _slope(series["descriptors"]),
            "threads": _slope(series["threads"]),
        }
        # Where TensorFlow leaks, its tensors cannot be told from objects of ours by their blocks.
        held = {} if LEAKS else {"blocks": blocks}
        for key, found in {**shown, **held}.items():
            if found.low > TOLERATED[key]:
                grown.append(
                    f"{case.name}, {way}, {name}: {key} by {found.value:,.1f} per minute "
                    f"({found.low:,.1f} to {found.high:,.1f})"
                )
        per_million = leak / steps_per_minute * MILLION / 1e6 if steps_per_minute > 0 else 0.0
        label = f"{case.name}, {name}" if way == soak_cases.JOBS else f"{case.name}, {way}"
        rows.append(
            f"| {label} | {steps_per_minute:,.0f} | {leak / 1e3:,.0f} | {per_million:,.1f} | "
            + " | ".join(_shown(shown[key].times(1e-3)) for key in ("heap", "resident"))
            + " | "
            + " | ".join(_shown(shown[key], 1) for key in ("descriptors", "threads"))
            + " |"
        )
    return rows


def _file_row(name: str, samples: Samples) -> str:
    shown = [f"{_slope(samples.files[k]).value:,.0f}" for k in ("log", "TensorBoard", "metrics")]
    shown += [f"{_slope(samples.files[k]).value:,.1f}" for k in ("other", "number")]
    return f"| {name} | " + " | ".join(shown) + " |"


def _slope(series: list[tuple[float, float]]) -> slopes.Slope:
    """Per minute; nothing of what was seen too seldom to tell."""
    if len(series) < 3:
        return slopes.Slope(0.0, 0.0, 0.0)
    return slopes.slope(*zip(*series)).times(MINUTE)


def _shown(slope: slopes.Slope, digits: int = 0) -> str:
    half = (slope.high - slope.low) / 2.0
    return f"{slope.value:,.{digits}f} ± {half:,.{digits}f}"


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
