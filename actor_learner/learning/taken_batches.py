"""An iterator over batches that are there, of the type of the one they were taken from."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def iterator_over(batches: Sequence[Any], element_spec: Any) -> tf.data.Iterator:
    """Returns an iterator over `batches` that a function traced for `element_spec` takes as well.

    A batch knows its shape better than the dataset it is from; with that, the train step would be
    traced again.
    """

    def as_specified(*parts: Any) -> Any:
        # tf.data hands over the parts of a plain tuple one by one.
        nest = parts if type(element_spec) is tuple else parts[0]
        return tf.nest.map_structure(
            lambda leaf, spec: tf.compat.v1.placeholder_with_default(leaf, spec.shape),
            nest,
            element_spec,
        )

    each = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    joined = functools.reduce(lambda first, second: first.concatenate(second), each)
    return iter(joined.map(as_specified))
