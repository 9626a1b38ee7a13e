"""Lets TF-Agents create the variables of networks that take in small integers."""

from __future__ import annotations

import contextlib
import unittest.mock
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tf_agents.specs import tensor_spec

_NOT_SAMPLED = frozenset({tf.int8, tf.int16, tf.uint16, tf.uint32, tf.uint64})


@contextlib.contextmanager
def of_any_integers() -> Iterator[None]:
    """A context in which networks are built whose observations may hold any integers.

    TF-Agents calls a network with random observations to create its variables, and cannot draw
    int8, which is what MultiBinary spaces and action masks hold. Such leaves are zeros here.
    """
    sample = tensor_spec.sample_spec_nest

    def sample_or_zeros(structure: Any, seed: Any = None, outer_dims: tuple[int, ...] = ()) -> Any:
        leaves = tf.nest.flatten(structure)
        drawable = [
            tf.TensorSpec(leaf.shape, tf.float32) if leaf.dtype in _NOT_SAMPLED else leaf
            for leaf in leaves
        ]
        if drawable == leaves:
            return sample(structure, seed=seed, outer_dims=outer_dims)
        drawn = sample(drawable, seed=seed, outer_dims=outer_dims)
        values = [
            tf.zeros(value.shape, leaf.dtype) if leaf.dtype in _NOT_SAMPLED else value
            for value, leaf in zip(drawn, leaves)
        ]
        return tf.nest.pack_sequence_as(structure, values)

    with unittest.mock.patch.object(tensor_spec, "sample_spec_nest", sample_or_zeros):
        yield
