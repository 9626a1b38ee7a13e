"""Commands that are run to their end, within a time."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
_END_SECONDS = 60.0
_TAIL = 4_000


class CommandError(RuntimeError):
    """A command failed or took too long; the message ends with what it wrote last."""


def run(command: Sequence[str], timeout_seconds: float) -> str:
    """Runs a command in the repository; returns what it wrote to its standard output.

    A command that takes too long is asked to end, and after a minute made to, together with the
    processes of its group.

    Raises:
      CommandError: If it fails, or takes longer than `timeout_seconds`.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, said = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        output, said = _end(process)
        raise CommandError(
            f"took longer than {timeout_seconds:g} s: {' '.join(command)}\n"
            f"{(output + said)[-_TAIL:]}"
        ) from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        raise CommandError(
            f"failed with exit code {process.returncode}: {' '.join(command)}\n"
            f"{(output + said)[-_TAIL:]}"
        )
    return output


def _end(process: subprocess.Popen) -> tuple[str, str]:
    """Ends a command and its group; returns what it wrote."""
    process.terminate()
    try:
        return process.communicate(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate(timeout=_END_SECONDS)
