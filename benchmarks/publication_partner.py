"""The other ends of a publication, in processes of their own, so that only one end is measured.

python -m benchmarks.publication_partner server
python -m benchmarks.publication_partner publisher ADDRESS
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator

START_SECONDS = 180
RUN_ID = "b" * 32


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[str]:
    """Starts a process of this module; gives the line that it begins with, and ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.publication_partner", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline().strip() if ready else ""
        if not line:
            raise RuntimeError(f"{arguments} did not start; exit code {process.poll()}")
        yield line
    finally:
        process.stdin.close()  # The process ends when its input does.
        process.kill()
        process.wait()


def variables() -> list:
    """Those of a policy as DQN has it on CartPole."""
    import tensorflow as tf

    shapes = ([4, 128], [128], [128, 128], [128], [128, 2], [2])
    return [tf.Variable(tf.zeros(shape)) for shape in shapes]


def publish(publisher, seconds: float) -> float:
    """Publishes as a learner does by default, for some seconds; returns the seconds it took.

    Announces as often as one that trains, after each slice; one that waits for experience has the
    time to do so more often.
    """
    from actor_learner import experiment
    from actor_learner.jobs import learner
    from actor_learner.parameters import publication

    interval = experiment.PUBLISH_SECONDS
    spent = 0.0
    began = time.perf_counter()
    published = began - interval
    for step in itertools.count():
        now = time.perf_counter()
        if now - began >= seconds:
            return spent
        if now - published >= interval:
            published = now
            publisher.publish(step)
        publisher.announce(
            publication.Announcement(
                RUN_ID, step, -1, step, step + 100, False, time.time(), {0: step}
            )
        )
        spent += time.perf_counter() - now
        time.sleep(learner.SLICE_SECONDS)


def main() -> None:
    from actor_learner.parameters import publication
    from actor_learner.parameters import publisher as publisher_lib
    from actor_learner.replay import server

    if sys.argv[1] == "server":
        served = server.ReplayServer(publication.publication_tables(variables()))
        print(served.address, flush=True)
        sys.stdin.read()
        served.stop()
        return
    publisher = publisher_lib.Publisher(sys.argv[2], variables())
    print("publishing", flush=True)
    publish(publisher, 3_600.0)


if __name__ == "__main__":
    main()
