"""A learner that does nothing but talk: its wire, its publisher, its inbox, and no training.

python -m benchmarks.wire_learner PUBLISH_SECONDS [POLICY_BYTES]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

POLL_SECONDS = 0.01
"""As a learner polls that waits for experience; one that trains talks less often."""

EPOCH = 1
SMALL_SHAPES = ([4, 64], [64], [64, 64], [64], [64, 2], [2])
"""Of the variables of DQN 64x64 on CartPole, 18 kB."""


def variables(num_bytes: int | None = None) -> list[Any]:
    """Those of DQN 64x64 on CartPole, or two of so many bytes in all."""
    import tensorflow as tf

    shapes: Sequence[Sequence[int]] = SMALL_SHAPES
    if num_bytes is not None:
        shapes = ([num_bytes // 8], [num_bytes // 8])
    return [tf.Variable(tf.zeros(shape)) for shape in shapes]


class WireLearner:
    """The learner's end of the wire.

    Args:
      publish_seconds: Least time between two versions of the policy.
      published: The variables of the policy.
    """

    def __init__(self, publish_seconds: float, published: Sequence[Any]) -> None:
        import tensorflow as tf

        from actor_learner.jobs.exchange import inbox, publisher
        from actor_learner.messaging import server
        from actor_learner.runs.progress import reported_statistics

        self._wire = server.Server({})
        self.address = self._wire.address
        self._publisher = publisher.Publisher(
            self._wire, published, epoch=EPOCH, version=0, interval_seconds=publish_seconds
        )
        self._inbox = inbox.Inbox(
            self._wire,
            epoch=EPOCH,
            statistics=reported_statistics.ReportedStatistics(),
            environment_step=tf.Variable(0, dtype=tf.int64),
            known_steps=lambda: self._inbox.steps,
            on_result=lambda request: request.refuse("there are no evaluations here"),
        )
        self._inbox.open()
        self._polls = 0

    @property
    def num_actors(self) -> int:
        return len(self._inbox.actors)

    def poll(self) -> None:
        """Does what a learner does between two slices of training, then waits a little.

        The train step that it tells is the time, in microseconds of the machine's clock: whoever
        hears it knows how late it is.
        """
        from actor_learner.jobs.exchange import news as news_lib

        self._polls += 1
        self._inbox.take_all()
        self._publisher.publish(self._polls)
        self._publisher.tell(
            news_lib.News(
                epoch=EPOCH,
                train_step=int(1e6 * time.monotonic()),
                version=self._publisher.version,
                environment_step=self._inbox.steps,
                steps_allowed=1 << 62,
                num_actors=max(1, self.num_actors),
                done=False,
            )
        )
        time.sleep(POLL_SECONDS)

    def run(self, seconds: float) -> None:
        """Polls for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.poll()

    def close(self) -> None:
        self._wire.close()


def main() -> None:
    from benchmarks import partner

    publish_seconds, *sizes = sys.argv[1:]
    learner = WireLearner(float(publish_seconds), variables(*map(int, sizes)))
    ended = partner.serve(
        learner.address,
        lambda: {
            "processor_seconds": time.process_time(),
            "seconds": time.monotonic(),
            "actors": learner.num_actors,
        },
    )
    while not ended.is_set():
        learner.poll()


if __name__ == "__main__":
    main()
