"""The other end of what is measured, in a process of its own, so that one end's time is its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from typing import Any, Callable

START_SECONDS = 180.0
_ANSWER_SECONDS = 30.0


class Partner:
    """Runs `python -m MODULE ARGUMENTS` until the context ends.

    Args:
      module: One whose `main` calls `serve`.
      arguments: Its command line.

    Attributes:
      line: What it said when it was ready.

    Raises:
      RuntimeError: If it does not start, or does not answer.
    """

    def __init__(self, module: str, *arguments: Any) -> None:
        self._name = " ".join([module, *map(str, arguments)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        try:
            self.line = self._read(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Partner:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def ask(self) -> dict[str, Any]:
        """What it has to say now; see the function that it gives to `serve`."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._read(_ANSWER_SECONDS))

    def close(self) -> None:
        """Ends the process; safe to call twice."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self, seconds: float) -> str:
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline().strip() if ready else ""
        if not line:
            raise RuntimeError(
                f"{self._name} has said nothing for {seconds:g} s; exit code "
                f"{self._process.poll()}. Run it by hand to see why"
            )
        return line


def serve(line: str, answer: Callable[[], dict[str, Any]]) -> threading.Event:
    """In the partner: says that it is ready, and answers from a thread from now on.

    Returns:
      Set when nobody asks any more: then the process must end.
    """
    ended = threading.Event()

    def run() -> None:
        for _ in sys.stdin:
            print(json.dumps(answer()), flush=True)
        ended.set()

    print(line, flush=True)
    threading.Thread(target=run, name="answers", daemon=True).start()
    return ended
