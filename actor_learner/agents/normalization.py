"""Running statistics by which observations are centred and scaled, and rewards are scaled.

They are variables: checkpoints hold them and, as part of the network, so do published variables and
exported policies. Only the learner updates them, from the data that it trains on.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.agents.losses import gae
from actor_learner.agents.networks import encoders
from actor_learner.support import errors, replicas, write_order

OBSERVATION_LIMIT = 10.0
REWARD_LIMIT = 10.0

_TINY = 1e-12
# Deviations below this share of the mean are rounding errors, which must not be blown up.
_RESOLUTION = 1e-4


class RunningMoments(tf.Module):
    """Mean and variance, per element, of all values seen so far; 0 and 1 before the first.

    Args:
      shape: Shape of one value.
      name: Prefix of the variables' names.
    """

    def __init__(self, shape: Any, name: str) -> None:
        super().__init__(name=name)
        self.count = _statistic(0.0, f"{name}/count")
        self.mean = _statistic(tf.zeros(shape), f"{name}/mean")
        self.variance = _statistic(tf.ones(shape), f"{name}/variance")

    def update(self, values: tf.Tensor, weights: tf.Tensor | None = None) -> None:
        """Adds float32 values `[count, ...]`; those whose weight `[count]` is 0 do not count.

        Of several replicas, each adds the values of all. Values that are not finite, or so large
        that their variance is not, raise `tf.errors.InvalidArgumentError`, and none is added.
        """
        if weights is None and not replicas.are_several():
            added = tf.cast(tf.shape(values)[0], tf.float32)
            mean, variance = tf.nn.moments(values, axes=[0])
        else:
            if weights is None:
                weights = tf.ones([tf.shape(values)[0]])
            wide = tf.reshape(weights, [-1] + [1] * (values.shape.rank - 1))
            added, summed = replicas.total(
                (tf.reduce_sum(weights), tf.reduce_sum(wide * values, axis=0))
            )
            mean = tf.math.divide_no_nan(summed, added)
            squares = wide * tf.math.squared_difference(values, mean)
            squares = replicas.total(tf.reduce_sum(squares, axis=0))
            variance = tf.math.divide_no_nan(squares, added)
        name = f"the variance of {self.name}"
        with write_order.checks_come_first():
            variance = tf.debugging.check_numerics(variance, name)
            self._add(added, mean, variance)

    def _add(self, added: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> None:
        total = self.count + added
        share = tf.math.divide_no_nan(added, total)
        shift = mean - self.mean
        spread = (1.0 - share) * self.variance + share * variance
        self.variance.assign(spread + tf.square(shift) * share * (1.0 - share))
        self.mean.assign_add(shift * share)
        self.count.assign(total)


class ObservationNormalizer(tf.Module):
    """Gives every element of the float vectors in an observation mean 0 and variance 1.

    Images, integers and booleans pass unchanged: their range is known.

    Args:
      observation_spec: Nest of tensor specs.
      limit: Normalised values are clipped to [-limit, limit].
    """

    def __init__(self, observation_spec: Any, limit: float = OBSERVATION_LIMIT) -> None:
        super().__init__(name="observation_normalizer")
        if limit <= 0:
            raise errors.ConfigError(f"the limit of observations must be above 0, got {limit}")
        self._limit = limit
        # Flat, with None for leaves that pass unchanged.
        self._moments = [
            RunningMoments(spec.shape, f"observation_{index}")
            if spec.dtype.is_floating and not encoders.is_image(spec)
            else None
            for index, spec in enumerate(tf.nest.flatten(observation_spec))
        ]

    def normalize(self, observation: Any) -> Any:
        """Normalises leaves `[..., *shape]`, with any outer dimensions, keeping their dtypes."""
        leaves = tf.nest.flatten(observation)
        return tf.nest.pack_sequence_as(
            observation,
            [
                leaf if moments is None else self._normalize(leaf, moments)
                for leaf, moments in zip(leaves, self._moments)
            ],
        )

    def update(self, observation: Any, weights: tf.Tensor | None = None) -> None:
        """Adds observations `[batch, T, *shape]`, but not those whose weight `[batch, T]` is 0."""
        if weights is not None:
            weights = tf.reshape(weights, [-1])
        for leaf, moments in zip(tf.nest.flatten(observation), self._moments):
            if moments is not None:
                values = tf.reshape(tf.cast(leaf, tf.float32), [-1, *moments.mean.shape])
                moments.update(values, weights)

    def _normalize(self, leaf: tf.Tensor, moments: RunningMoments) -> tf.Tensor:
        centred = tf.cast(leaf, tf.float32) - moments.mean
        least = _TINY + tf.square(_RESOLUTION * moments.mean)
        scaled = centred * tf.math.rsqrt(moments.variance + least)
        return tf.cast(tf.clip_by_value(scaled, -self._limit, self._limit), leaf.dtype)


class RewardNormalizer(tf.Module):
    """Scales rewards by the standard deviation of discounted returns, without centring them.

    The return of a lane is the discounted sum of the rewards since its episode began, at a row of
    type FIRST. The learner sees episodes in unrolls, so the sums go on from one unroll to the next:
    row i of a batch continues row i of the batch before. With several actors that may be another
    lane; lanes being alike, the statistics are the same.

    Args:
      gamma: Discount factor of the returns.
      limit: Scaled rewards are clipped to [-limit, limit].
    """

    def __init__(self, gamma: float, limit: float = REWARD_LIMIT) -> None:
        super().__init__(name="reward_normalizer")
        _check_reward_limit(limit)
        self._gamma = gamma
        self._limit = limit
        self.moments = RunningMoments([], "discounted_return")
        # Each replica has the sums of its own lanes; a checkpoint holds the first one's.
        self.running = tf.Variable(
            tf.zeros([0]),
            trainable=False,
            shape=[None],
            name="discounted_return/running",
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def normalize(self, reward: tf.Tensor) -> tf.Tensor:
        """Scales rewards of any shape."""
        scaled = reward * tf.math.rsqrt(self.moments.variance + _TINY)
        return tf.clip_by_value(scaled, -self._limit, self._limit)

    def update(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Adds the rewards of an unroll's trajectory, leaves `[batch, T + 1, ...]`."""
        is_step = tf.not_equal(trajectory.step_type[:, :-1], ts.StepType.LAST)
        mask = tf.cast(is_step, tf.float32)
        batch = tf.shape(mask)[0]
        start = tf.pad(self.running, [[0, batch]])[:batch]  # Rows that are new begin with 0.
        # sum_t = mask_t * reward_t + decay_t * sum_{t-1}: the first step of an episode forgets the
        # sum. The boundary row before it may not have been seen: not of a lane that took the place
        # of another in the batch, nor of environments that a resumed run has made again. Reversed,
        # sums run as advantages do.
        begins = tf.equal(trajectory.step_type[:, :-1], ts.StepType.FIRST)
        decay = tf.where(begins, 0.0, self._gamma * mask)
        term = mask * trajectory.reward[:, :-1]
        term = tf.concat([term[:, :1] + decay[:, :1] * start[:, tf.newaxis], term[:, 1:]], axis=1)
        sums = gae.backward_sums(term[:, ::-1], decay[:, ::-1])  # The latest step first.
        with write_order.checks_come_first():
            sums = tf.debugging.check_numerics(sums, "the discounted sum of rewards")
            self.moments.update(tf.reshape(sums, [-1]), tf.reshape(mask[:, ::-1], [-1]))
            self.running.assign(sums[:, 0])


class SampledRewardNormalizer(tf.Module):
    """Scales rewards out of replay so that returns are about 1, without centring them.

    Sampled steps come in any order, so the returns that `RewardNormalizer` follows are not known.
    But if S is the root mean square of the rewards that replay hands out, each the discounted sum
    of n steps, that of the returns is at most

        S + gamma^n S + gamma^2n S + ... = S / (1 - gamma^n)

    by the triangle inequality, and nearly that where rewards are alike and episodes long. Rewards
    are divided by this bound. So values lie within about [-1, 1], as with `RewardNormalizer`, and
    do not depend on n. S is the mean of the squares, not a deviation: a reward that is always the
    same has none.

    Args:
      gamma: Discount factor, below 1.
      n_step: Steps whose rewards each sampled reward sums up.
      limit: Scaled rewards are clipped to [-limit, limit].
    """

    def __init__(self, gamma: float, n_step: int = 1, limit: float = REWARD_LIMIT) -> None:
        super().__init__(name="reward_normalizer")
        _check_reward_limit(limit)
        if not gamma < 1.0:
            raise errors.ConfigError(
                f"normalize_rewards scales rewards by what they sum up to, which has no bound with "
                f"gamma = {gamma}: set gamma below 1, or use reward_scale instead"
            )
        self._share = 1.0 - gamma**n_step
        self._limit = limit
        self.moments = RunningMoments([], "reward")

    @property
    def factor(self) -> tf.Tensor:
        """What rewards are multiplied by."""
        squares = self.moments.variance + tf.square(self.moments.mean)
        return self._share * tf.math.rsqrt(squares + _TINY)

    def normalize(self, reward: Any) -> tf.Tensor:
        """Scales rewards of any shape."""
        return tf.clip_by_value(reward * self.factor, -self._limit, self._limit)

    def update(self, reward: tf.Tensor, weights: tf.Tensor | None = None) -> None:
        """Adds rewards of any shape; those whose weight, of the same shape, is 0 do not count."""
        if weights is not None:
            weights = tf.reshape(weights, [-1])
        self.moments.update(tf.reshape(reward, [-1]), weights)


def _statistic(initial: Any, name: str) -> tf.Variable:
    return tf.Variable(
        initial,
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,  # All compute the same.
    )


def check_limits(
    agent: str,
    *,
    normalize_observations: bool,
    observation_limit: float = OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = REWARD_LIMIT,
) -> None:
    """Refuses limits of what is not normalised.

    Raises:
      errors.ConfigError: Names the parameter of `agent`.
    """
    for name, value, default, needs, given in (
        (
            "observation_limit",
            observation_limit,
            OBSERVATION_LIMIT,
            "normalize_observations",
            normalize_observations,
        ),
        ("reward_limit", reward_limit, REWARD_LIMIT, "normalize_rewards", normalize_rewards),
    ):
        if value != default and not given:
            raise errors.ConfigError(
                f"{agent}.{name} is {value}, but has no effect without {agent}.{needs}: set that "
                f"too, or leave {name} out"
            )


def _check_reward_limit(limit: float) -> None:
    if limit <= 0:
        raise errors.ConfigError(f"the limit of rewards must be above 0, got {limit}")
