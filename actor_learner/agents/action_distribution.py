"""Distributions over any action spec, as plain functions of one tensor of parameters.

A few operations per call: objects of TensorFlow Probability, which check and broadcast everything,
take several times as many. They are made only where somebody asks for them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.distributions import shifted_categorical
from tf_agents.specs import tensor_spec

from actor_learner.agents import action_range
from actor_learner.support import errors

_IMPOSSIBLE = -1e9  # Logit of choices that a component of an action does not have.


class Sample(NamedTuple):
    """Actions drawn for a batch.

    Attributes:
      action: Nest like the action spec, within its bounds, leaves `[batch, ...]`.
      raw: `[batch, R]` float32, what was drawn for all continuous elements, before it was scaled
        and clipped; None without continuous elements.
    """

    action: Any
    raw: tf.Tensor | None


class _Choices(NamedTuple):
    """A discrete leaf: `size` independent choices among up to `depth` values from `low` on."""

    spec: tensor_spec.BoundedTensorSpec
    start: int  # Within the parameters.
    size: int
    depth: int
    low: np.ndarray  # [size]
    mask: np.ndarray | None  # [size, depth], added to the logits; None if all have `depth` values.


class _Numbers(NamedTuple):
    """A continuous leaf: a part of the raw vector, scaled and clipped to its bounds."""

    range: action_range.ActionRange
    start: int  # Within the raw vector.

    @property
    def part(self) -> slice:
        return slice(self.start, self.start + self.range.size)


class ActionDistribution:
    """What a policy network's output means: categorical choices and a diagonal Gaussian.

    Discrete leaves (scalars, or arrays of choices that may have different numbers of values) are
    independent categorical distributions. All continuous elements together are one Gaussian over
    raw numbers: an element with bounds is `centre + half_range * raw`, clipped. Probabilities are
    those of the raw numbers: clipping loses what was drawn, so whoever wants the probability of an
    action later has to keep them.

    Parameters are `[..., num_parameters]`: the logits of all discrete leaves, then the means, then
    the logarithms of the standard deviations of the R continuous elements.

    Args:
      action_spec: Nest of bounded tensor specs; integers, or floats with or without bounds.
    """

    def __init__(self, action_spec: Any) -> None:
        self._action_spec = action_spec
        self._leaves: list[_Choices | _Numbers] = []
        self.num_logits = 0
        self.num_continuous = 0
        for spec in tf.nest.flatten(action_spec):
            if spec.dtype.is_integer:
                leaf = _choices(spec, self.num_logits)
                self.num_logits += leaf.size * leaf.depth
            elif spec.dtype.is_floating:
                leaf = _Numbers(action_range.ActionRange(spec), self.num_continuous)
                self.num_continuous += leaf.range.size
            else:
                raise errors.SpecMismatchError(f"no policy can choose an action of {spec}")
            self._leaves.append(leaf)

    @property
    def num_parameters(self) -> int:
        return self.num_logits + 2 * self.num_continuous

    @property
    def raw_spec(self) -> tensor_spec.TensorSpec | None:
        """Spec of `Sample.raw` for one action; None without continuous elements."""
        if not self.num_continuous:
            return None
        return tensor_spec.TensorSpec([self.num_continuous], tf.float32, "raw_action")

    def without_illegal(self, parameters: tf.Tensor, legal: tf.Tensor) -> tf.Tensor:
        """Parameters that give actions which are not legal no probability.

        Args:
          parameters: `[..., at least num_logits]`, of which the logits come first.
          legal: bool `[..., num_logits]`.
        """
        logits = tf.where(legal, parameters[..., : self.num_logits], _IMPOSSIBLE)
        if parameters.shape[-1] == self.num_logits:
            return logits
        return tf.concat([logits, parameters[..., self.num_logits :]], axis=-1)

    def sample(self, parameters: tf.Tensor) -> Sample:
        """Draws one action for each of `[batch, num_parameters]`."""
        raw = None
        if self.num_continuous:
            mean, log_stddev = self._gaussian(parameters)
            raw = mean + tf.exp(log_stddev) * tf.random.normal(tf.shape(mean))
        return Sample(self._act(parameters, raw, _draw), raw)

    def mode(self, parameters: tf.Tensor) -> Any:
        """The most likely action for each of `[batch, num_parameters]`."""
        raw = self._gaussian(parameters)[0] if self.num_continuous else None
        return self._act(parameters, raw, lambda logits: tf.argmax(logits, axis=-1))

    def log_probability(
        self, parameters: tf.Tensor, action: Any, raw: tf.Tensor | None
    ) -> tf.Tensor:
        """Logarithm of the probability (density, for the continuous elements) of actions.

        Args:
          parameters: `[..., num_parameters]`.
          action: Nest like the action spec, leaves `[..., *shape]`; only discrete leaves are read.
          raw: `[..., R]`, as drawn; None without continuous elements.

        Returns:
          `[...]`, summed over all leaves and their elements.
        """
        terms = []
        for leaf, part in zip(self._leaves, tf.nest.flatten(action)):
            if isinstance(leaf, _Choices):
                logits = _logits(leaf, parameters)
                cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    _chosen(leaf, part, logits), logits
                )
                terms.append(_sum_choices(leaf, -cross_entropy))
        if self.num_continuous:
            mean, log_stddev = self._gaussian(parameters)
            squares = tf.square((raw - mean) * tf.exp(-log_stddev))
            constant = 0.5 * self.num_continuous * math.log(2.0 * math.pi)
            terms.append(-tf.reduce_sum(0.5 * squares + log_stddev, axis=-1) - constant)
        return terms[0] if len(terms) == 1 else tf.add_n(terms)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Entropy `[...]` of distributions with parameters `[..., num_parameters]`."""
        terms = []
        for leaf in self._leaves:
            if isinstance(leaf, _Choices):
                log_probabilities = tf.nn.log_softmax(_logits(leaf, parameters))
                products = tf.exp(log_probabilities) * log_probabilities
                terms.append(_sum_choices(leaf, -tf.reduce_sum(products, axis=-1)))
        if self.num_continuous:
            _, log_stddev = self._gaussian(parameters)
            constant = 0.5 * self.num_continuous * math.log(2.0 * math.pi * math.e)
            terms.append(tf.reduce_sum(log_stddev, axis=-1) + constant)
        return terms[0] if len(terms) == 1 else tf.add_n(terms)

    def distribution(self, parameters: tf.Tensor) -> Any:
        """A nest of TensorFlow Probability distributions, for `[batch, num_parameters]`.

        In action units, and unclipped: samples may lie outside the bounds, modes do not.
        """
        parts = []
        mean, log_stddev = self._gaussian(parameters) if self.num_continuous else (None, None)
        for leaf in self._leaves:
            if isinstance(leaf, _Choices):
                logits = tf.reshape(_logits(leaf, parameters), [-1, *leaf.spec.shape, leaf.depth])
                parts.append(
                    shifted_categorical.ShiftedCategorical(
                        logits=logits,
                        dtype=leaf.spec.dtype,
                        shift=leaf.low.reshape(leaf.spec.shape).astype(
                            leaf.spec.dtype.as_numpy_dtype
                        ),
                    )
                )
            else:
                spec = leaf.range.spec
                stddev = tf.cast(tf.exp(log_stddev[..., leaf.part]), spec.dtype)
                stddev = tf.reshape(stddev * leaf.range.half_range, [-1, *spec.shape])
                parts.append(
                    tfp.distributions.Independent(
                        tfp.distributions.Normal(
                            leaf.range.to_environment(mean[..., leaf.part]), stddev
                        ),
                        reinterpreted_batch_ndims=spec.shape.rank,
                    )
                )
        return tf.nest.pack_sequence_as(self._action_spec, parts)

    def _gaussian(self, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = self.num_logits + self.num_continuous
        return parameters[..., self.num_logits : first], parameters[..., first:]

    def _act(self, parameters: tf.Tensor, raw: tf.Tensor | None, choose: Any) -> Any:
        parts = []
        for leaf in self._leaves:
            if isinstance(leaf, _Choices):
                logits = _logits(leaf, parameters)
                if leaf.spec.shape.rank:
                    logits = tf.reshape(logits, [-1, leaf.depth])
                chosen = tf.reshape(choose(logits), [-1, *leaf.spec.shape])
                if leaf.low.any():
                    chosen += leaf.low.reshape(leaf.spec.shape)
                parts.append(tf.cast(chosen, leaf.spec.dtype))
            else:
                parts.append(leaf.range.to_environment(raw[..., leaf.part]))
        return tf.nest.pack_sequence_as(self._action_spec, parts)


def _draw(logits: tf.Tensor) -> tf.Tensor:
    # Of logits that are NaN, TensorFlow draws a choice that does not exist, whose probability is an
    # error in the policy; it is for the learner to say what is not finite.
    drawn = tf.random.categorical(logits, 1)
    return tf.where(drawn < logits.shape[-1], drawn, 0)


def _choices(spec: tensor_spec.BoundedTensorSpec, start: int) -> _Choices:
    if not isinstance(spec, tensor_spec.BoundedTensorSpec):
        raise errors.SpecMismatchError(f"a discrete action needs bounds, got {spec}")
    size = spec.shape.num_elements()
    low = np.broadcast_to(spec.minimum, spec.shape).reshape(size).astype(np.int64)
    high = np.broadcast_to(spec.maximum, spec.shape).reshape(size).astype(np.int64)
    counts = high - low + 1
    depth = int(counts.max())
    mask = None
    if (counts != depth).any():
        mask = np.where(np.arange(depth) < counts[:, np.newaxis], 0.0, _IMPOSSIBLE)
        mask = mask.astype(np.float32)
    return _Choices(spec, start, size, depth, low, mask)


def _logits(leaf: _Choices, parameters: tf.Tensor) -> tf.Tensor:
    """`[..., depth]` for a scalar action, `[..., size, depth]` for an array of them."""
    logits = parameters
    if leaf.start or leaf.size * leaf.depth != parameters.shape[-1]:
        logits = parameters[..., leaf.start : leaf.start + leaf.size * leaf.depth]
    if leaf.spec.shape.rank == 0:
        return logits
    outer = tf.shape(logits)[:-1]
    static = logits.shape[:-1].concatenate([leaf.size, leaf.depth])
    logits = tf.reshape(logits, tf.concat([outer, [leaf.size, leaf.depth]], axis=0))
    logits = tf.ensure_shape(logits, static)
    return logits if leaf.mask is None else logits + leaf.mask


def _chosen(leaf: _Choices, action: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Which choices an action stands for, counted from 0; shaped like the logits but the last."""
    chosen = tf.cast(action, tf.int64)
    if leaf.low.any():
        chosen -= leaf.low.reshape(leaf.spec.shape)
        chosen = tf.maximum(chosen, 0)  # Rows that are no steps are filled with 0.
    if leaf.spec.shape.rank > 1:
        chosen = tf.reshape(chosen, tf.shape(logits)[:-1])
    return chosen


def _sum_choices(leaf: _Choices, values: tf.Tensor) -> tf.Tensor:
    return values if leaf.spec.shape.rank == 0 else tf.reduce_sum(values, axis=-1)
