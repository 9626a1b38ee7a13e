"""The other ends of a publication, in processes of their own, so that only one end is measured.

python -m benchmarks.publication_partner server
python -m benchmarks.publication_partner learner ADDRESS PUBLISH_SECONDS
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
import types
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


class Learner:
    """Publishes and announces as a learner does, and does nothing else.

    Args:
      address: Of the server.
      publish_seconds: `Staleness.publish_seconds`.
    """

    def __init__(self, address: str, publish_seconds: float) -> None:
        import tensorflow as tf

        from actor_learner.jobs import broadcast, learner

        published = variables()
        self._step = tf.Variable(0, dtype=tf.int64)
        self._steps = 0
        # One that waits for experience has the time to do so more often.
        self._tell_seconds = min(publish_seconds, learner.SLICE_SECONDS)
        self._broadcast = broadcast.Broadcast(
            types.SimpleNamespace(address=address, run_id=RUN_ID, require_same_run=lambda: None),
            types.SimpleNamespace(
                published_variables=lambda: published,
                plan=types.SimpleNamespace(publish_seconds=publish_seconds),
                train_step=self._step,
                environment_step=self._step,
            ),
            counted=lambda: {0: self._steps},
            limit=None,
        )

    def run(self, seconds: float) -> None:
        """Tells the others after every slice of train steps, or whenever it may publish."""
        import numpy as np
        import tensorflow as tf

        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._steps += 1
            # What training does anyway, as cheaply as can be: it is not what is measured.
            tf.raw_ops.AssignVariableOp(resource=self._step.handle, value=np.int64(self._steps))
            self._broadcast.publish()
            self._broadcast.announce(steps_allowed=100)
            time.sleep(self._tell_seconds)

    def close(self) -> None:
        self._broadcast.close()


def main() -> None:
    from actor_learner.parameters import publication
    from actor_learner.replay.server import server

    if sys.argv[1] == "server":
        served = server.ReplayServer(publication.publication_tables(variables()))
        print(served.address, flush=True)
        sys.stdin.read()
        served.stop()
        return
    learner = Learner(sys.argv[2], float(sys.argv[3]))
    print("publishing", flush=True)
    learner.run(3_600.0)


if __name__ == "__main__":
    main()
