"""A replay server in a process of its own, so that its memory can be measured.

python -m benchmarks.memory_server ours "84x84x4 image" 8
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator

START_SECONDS = 120


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple[str, int]]:
    """Starts the process; gives its `(address, process id)` and ends it afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.memory_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        address = process.stdout.readline().strip() if ready else ""
        if not address:
            raise RuntimeError(
                f"the replay server {arguments} did not start within {START_SECONDS} s; "
                f"exit code {process.poll()}"
            )
        yield address, process.pid
    finally:
        process.stdin.close()  # The process ends when its input does.
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def resident_bytes(pid: int) -> int:
    """Memory that a process holds at the moment."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(side: str, case: str, lanes: int) -> None:
    from benchmarks import memory, settings

    if side == "ours":
        from actor_learner.replay.server import server

        stream, experience = memory.our_stream(case, lanes)
        serving = server.ReplayServer(stream.tables(experience))
        address = serving.address
    else:
        import reverb

        serving = reverb.Server([settings.peer_table(memory.CAPACITY)])
        address = f"localhost:{serving.port}"
    print(address, flush=True)
    sys.stdin.read()
    serving.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
