"""Starts `rival.py` processes and ends them."""

import contextlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def started(*arguments, count=1):
    """Processes that have said `ready`; whichever still runs at the end is killed."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).with_name("rival.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def go(processes):
    """Lets them begin, all at once."""
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
