"""From the command to the first line of metrics with steps, in seconds: less is better.

The peer is one `import tensorflow` in a process of its own, by turns with ours: `ours / peer` says
how many of them a user waits for.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable

from benchmarks import harness, settings

ROOT = pathlib.Path(__file__).resolve().parents[1]
START_SECONDS = 300.0
END_SECONDS = 120.0
_LOOK_SECONDS = 0.01
COMMANDS = {
    "up, 2 actors: s to the first steps": ("up", "--actors=2"),
    "train: s to the first steps": ("train",),
}


def rows(config: settings.Settings) -> list[harness.Row]:
    repetitions = min(config.repetitions, 5)
    found = harness.alternate(
        {
            **{case: _until_first_steps(command) for case, command in COMMANDS.items()},
            "import tensorflow": _import_tensorflow,
        },
        repetitions,
        warm_up=repetitions > 1,  # Files that were never read take longer.
    )
    return [
        harness.row("startup", case, {"ours": found[case], "peer": found["import tensorflow"]})
        for case in COMMANDS
    ]


def _import_tensorflow() -> float:
    began = time.perf_counter()
    _start("-c", "import tensorflow").wait(START_SECONDS)
    return time.perf_counter() - began


def _until_first_steps(command: tuple[str, ...]) -> Callable[[], float]:
    def measure() -> float:
        with tempfile.TemporaryDirectory() as directory:
            run = pathlib.Path(directory) / "run"
            began = time.perf_counter()
            process = _start(
                *("-m", "actor_learner.cli", *command),
                *("--gin_file=dqn_cartpole", f"--run_dir={run}"),
            )
            try:
                while not has_steps(run):
                    if process.poll() is not None or time.perf_counter() - began > START_SECONDS:
                        raise RuntimeError(f"{' '.join(command)} has not taken any steps")
                    time.sleep(_LOOK_SECONDS)
                return time.perf_counter() - began
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(END_SECONDS)

    return measure


def has_steps(run: pathlib.Path) -> bool:
    from actor_learner import run_directory
    from actor_learner.reporting import jsonl

    metrics = run_directory.RunDirectory(run).metrics_jsonl
    return metrics.exists() and any(
        row.get("environment_steps") for row in jsonl.read_rows(metrics)
    )


def _start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
