"""The streams besides `LaneReplay`, each with the closest that TF-Agents has."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.server import server
from actor_learner.replay.streams import (
    prioritized_replay,
    sample_stream,
    sequence_replay,
    unroll_queue,
)

CAPACITY = 200_000
SEQUENCE_LENGTH, PERIOD = 80, 40
UNROLL_LENGTH, UNROLLS_PER_BATCH = 32, 256


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of stream.

    Attributes:
      name: In the table.
      build: Makes ours, with a capacity in items.
      batch_size: Items of one batch, of both sides.
      steps: Steps that one sampled item of ours brings to the learner.
      window: Steps of an item of TF-Agents' observer,
      stride: and between the beginnings of two of them.
      prioritized: Items are sampled by priority.
    """

    name: str
    build: Callable[[int], sample_stream.SampleStream]
    batch_size: int
    steps: int
    window: int
    stride: int
    prioritized: bool


def _prioritized(capacity: int) -> sample_stream.SampleStream:
    # A constant exponent: there is no train step that it could follow.
    return prioritized_replay.PrioritizedReplay(capacity, importance_start=1.0, importance_end=1.0)


def _sequences(capacity: int) -> sample_stream.SampleStream:
    return sequence_replay.SequenceReplay(capacity, sequence_length=SEQUENCE_LENGTH, period=PERIOD)


def _unrolls(capacity: int) -> sample_stream.SampleStream:
    # Of so many items that writing never waits for a reader.
    return unroll_queue.UnrollQueue(
        UNROLL_LENGTH, unrolls_per_batch=UNROLLS_PER_BATCH, max_queued_batches=capacity
    )


PRIORITIZED = Kind("PrioritizedReplay", _prioritized, 256, 1, 2, 1, True)
SEQUENCES = Kind(
    f"SequenceReplay {SEQUENCE_LENGTH}/{PERIOD}",
    _sequences, 64, SEQUENCE_LENGTH, SEQUENCE_LENGTH, PERIOD, True,
)  # fmt: skip
UNROLLS = Kind(
    f"UnrollQueue {UNROLL_LENGTH}",
    _unrolls, UNROLLS_PER_BATCH, UNROLL_LENGTH, UNROLL_LENGTH, UNROLL_LENGTH, False,
)  # fmt: skip
KINDS = (PRIORITIZED, SEQUENCES, UNROLLS)


class Stream:
    """An embedded server with the tables of a stream, and an observer that fills them."""

    def __init__(self, replay: sample_stream.SampleStream, data_spec: Any, num_lanes: int) -> None:
        self.replay = replay
        self.experience = sample_stream.Experience(data_spec, num_lanes, 1, 0.99)
        self.server = server.ReplayServer(replay.tables(self.experience))
        self.observer = replay.observer(self.experience, self.server.client())

    def dataset(self, batch_size: int) -> Any:
        return self.replay.dataset(self.experience, self.server.address, batch_size, 30.0)

    def observed(self, step: Any) -> Any:
        """A step, a `Trajectory`, in the form that the observer takes."""
        if not getattr(self.observer, "observes_transitions", False):
            return step
        before = ts.TimeStep(step.step_type, step.reward, step.discount, step.observation)
        action = policy_step.PolicyStep(step.action, (), step.policy_info)
        return before, action, before._replace(step_type=step.next_step_type)

    def empty(self) -> None:
        """Removes all items, which a queue nobody reads from would keep."""
        self.server.client().reset(self.replay.table_name)

    def close(self) -> None:
        self.observer.close()
        self.server.stop()
