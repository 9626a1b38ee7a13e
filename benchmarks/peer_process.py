"""Other systems, measured by scripts of `benchmarks/peers` in an environment of their own.

`make bench-peers` makes that environment; without it `available()` is False and nothing can run.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks import processes

ENVIRONMENT = processes.ROOT / ".venv-peers"
SCRIPTS = processes.ROOT / "benchmarks" / "peers"
RUN_SECONDS = 1_800


def available() -> bool:
    """Whether the peers' environment is there, complete."""
    return (ENVIRONMENT / ".installed").exists()


def run(script: str, *arguments: str, timeout_seconds: float = RUN_SECONDS) -> dict[str, Any]:
    """Runs a script of the peers to its end; returns the JSON that its last line holds.

    Raises:
      processes.CommandError: If it fails, or takes longer than `timeout_seconds`.
    """
    command = [str(ENVIRONMENT / "bin" / "python"), str(SCRIPTS / script), *arguments]
    return json.loads(processes.run(command, timeout_seconds).splitlines()[-1])
