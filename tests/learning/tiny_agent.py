"""An agent with one weight, which traces in milliseconds, and what to train it on."""

from __future__ import annotations

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import random_tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

BATCH, STEPS = 3, 2


class TinyAgent(tf_agent.TFAgent):
    """Moves a weight towards the mean observation; writes summaries around the step's increment."""

    def __init__(self, train_step, increment=1):
        time_step_spec = ts.time_step_spec(tf.TensorSpec([2], tf.float32))
        action_spec = tensor_spec.BoundedTensorSpec([], tf.int32, 0, 1)
        policy = random_tf_policy.RandomTFPolicy(time_step_spec, action_spec)
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            policy,
            train_sequence_length=STEPS,
            train_step_counter=train_step,
        )
        self.weight = tf.Variable(0.0, name="weight")
        self.optimizer = tf.keras.optimizers.legacy.Adam(0.1)
        self.increment = increment
        self.traces = 0

    def _train(self, experience, weights=None):
        self.traces += 1
        with tf.GradientTape() as tape:
            loss = tf.square(self.weight - tf.reduce_mean(experience.observation))
        tf.summary.scalar("before", loss, step=self.train_step_counter)
        gradients = tape.gradient(loss, [self.weight])
        self.optimizer.apply_gradients(zip(gradients, [self.weight]))
        self.train_step_counter.assign_add(self.increment)
        tf.summary.scalar("after", loss, step=self.train_step_counter)
        return tf_agent.LossInfo(loss, {"batch": experience.reward[:, 0], "nothing": ()})

    def _loss(self, experience, weights=None, training=False):
        return tf_agent.LossInfo(tf.reduce_mean(experience.observation), ())


def experience(value=1.0):
    """One batch of trajectories whose observations, rewards and discounts are all `value`."""
    number = tf.fill([BATCH, STEPS], float(value))
    code = tf.ones([BATCH, STEPS], tf.int32)
    return trajectory.Trajectory(
        step_type=code,
        observation=tf.fill([BATCH, STEPS, 2], float(value)),
        action=code,
        policy_info=(),
        next_step_type=code,
        reward=number,
        discount=number,
    )


def dataset(batches=None):
    """Endless batches of ones, or as many as asked for."""
    made = tf.data.Dataset.from_tensors((experience(), ())).repeat(batches)
    options = tf.data.Options()
    options.autotune.enabled = False  # For TF-Agents' learners: see `learning/tuning.py`.
    return made.with_options(options)


def train_step(value=0):
    return tf.Variable(value, dtype=tf.int64)
