"""Many toy jobs as threads of one process: `python -m tests.jobs.many_toys REGISTRY FIRST END`."""

import sys

from actor_learner.naming import files
from tests.jobs import toy_workers

if __name__ == "__main__":
    directory, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    everybody = [
        toy_workers.Running(
            toy_workers.Puppet(), "actor", index, names=files.FileRegistry(directory),
            heartbeat_seconds=5.0,
        )
        for index in range(first, end)
    ]  # fmt: skip
    for running in everybody:
        running.join(timeout=600.0)
