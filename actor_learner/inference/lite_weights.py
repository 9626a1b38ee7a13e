"""Variables of a policy as inputs of a TFLite model: read when they have changed, not before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, NamedTuple

import numpy as np
import tensorflow as tf

from actor_learner.support import counters, packed_variables


class ShapeChangedError(Exception):
    """A variable has another shape than the model was made for."""


class WeightInput(NamedTuple):
    """An input of the model that gets the value of a variable."""

    variable: tf.Variable
    index: int
    shape: tuple[int, ...]
    transposed: bool


class Weights:
    """Hands the values of variables over to a model.

    Trainable variables with a shape are read when their version has moved. All others, steps of
    schedules and the like, are few and small, and read in every refresh: they change on their own.
    Each reading is one TensorFlow call, which makes one tensor.

    Args:
      set_tensor: Sets an input of the model, by its index.
      inputs: All inputs that are variables.

    Attributes:
      steady_indices: Inputs of float32 that change only with the version,
      other_indices: and all others.
    """

    def __init__(
        self, set_tensor: Callable[[int, np.ndarray], None], inputs: Sequence[WeightInput]
    ) -> None:
        self._set_tensor = set_tensor
        self._trained = [each for each in inputs if each.variable.trainable and each.shape]
        self._others = [each for each in inputs if not (each.variable.trainable and each.shape)]
        self.steady_indices = [
            each.index for each in self._trained if each.variable.dtype == tf.float32
        ]
        steady = set(self.steady_indices)
        self.other_indices = [each.index for each in inputs if each.index not in steady]
        # A train step changes all trained variables together, so one tells of the others. The last
        # of the smallest is usually the bias of the outputs.
        self._witness: tf.Variable | None = None
        if self._trained:
            self._witness = min(
                reversed(self._trained), key=lambda each: int(np.prod(each.shape))
            ).variable
        self._witnessed = b""
        self._all = _packed([*self._trained, *self._others])
        self._only_others = _packed(self._others)

    def read_all(self) -> None:
        """Hands over the values of all variables.

        Raises:
          ShapeChangedError: If one has another shape than the model was made for.
        """
        inputs = [*self._trained, *self._others]
        for each, value in zip(inputs, self._all.read()):
            self._hand_over(each, value)
            if each.variable is self._witness:
                self._witnessed = value.tobytes()

    def read_others(self) -> None:
        """Hands over the values of those variables that change without a new version."""
        for each, value in zip(self._others, self._only_others.read()):
            self._hand_over(each, value)

    def have_changed(self) -> bool:
        """Whether the trained variables have changed since they were read; looks at one of them."""
        if self._witness is None:
            return False
        return counters.read(self._witness).tobytes() != self._witnessed

    def _hand_over(self, each: WeightInput, value: np.ndarray) -> None:
        if value.shape != each.shape:
            raise ShapeChangedError(each.variable.name)
        self._set_tensor(each.index, value.T if each.transposed else value)


def _packed(inputs: Sequence[WeightInput]) -> packed_variables.PackedVariables:
    return packed_variables.PackedVariables([each.variable for each in inputs])
