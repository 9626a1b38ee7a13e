"""A sample stream of one's own: clips rewards where the learner reads them, not where actors write.

Used by `examples/own_network.gin`. A stream builds the tables, the observer that writes to them and
the dataset that reads; what `LaneReplay` does well is inherited.
"""

import gin
import tensorflow as tf

from actor_learner import Experience, LaneReplay


@gin.configurable
class ClippedReplay(LaneReplay):
    """`LaneReplay` whose batches have rewards in [-limit, limit]."""

    def __init__(self, limit=1.0, capacity=100_000):
        super().__init__(capacity)
        self._limit = limit

    def dataset(self, experience: Experience, server_address, batch_size, timeout_seconds):
        """Batches are `(Trajectory, SampleInfo)`, leaves `[batch, 2, ...]`."""
        batches = super().dataset(experience, server_address, batch_size, timeout_seconds)

        def clip(trajectory, info):
            reward = tf.clip_by_value(trajectory.reward, -self._limit, self._limit)
            return trajectory._replace(reward=reward), info

        return batches.map(clip)
