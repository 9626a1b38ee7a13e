"""A metric of one's own, in a loop of one's own: `python examples/own_metric.py`.

In runs of gin files numbers of the agent become columns of the metrics by `Algorithm.gauges` and by
the names in `LossInfo.extra` (own_agent.py).
"""

import numpy as np
import tensorflow as tf
from tf_agents.metrics import py_metric
from tf_agents.policies import random_tf_policy
from tf_agents.specs import tensor_spec

from actor_learner import Actor, GymnasiumEnvironment


class Swing(py_metric.PyMetric):
    """The largest pole angle seen, over all lanes."""

    def __init__(self):
        super().__init__("Swing")
        self.reset()

    def call(self, trajectory):
        """`trajectory`: one step of all lanes, NumPy leaves `[lanes, ...]`."""
        self._largest = max(self._largest, float(np.abs(trajectory.observation[:, 2]).max()))

    def result(self):
        return np.float32(self._largest)

    def reset(self):
        self._largest = 0.0


def main():
    env = GymnasiumEnvironment("CartPole-v1", num_envs=4, seed=1)
    policy = random_tf_policy.RandomTFPolicy(
        tensor_spec.from_spec(env.time_step_spec()), tensor_spec.from_spec(env.action_spec())
    )
    train_step = tf.Variable(0, dtype=tf.int64)
    actor = Actor(env, policy, train_step, steps_per_run=400, metrics=[Swing()])
    actor.run()
    print(f"{actor.metrics[0].name}: {actor.metrics[0].result():.3f}")


if __name__ == "__main__":
    main()
