"""Which actions are legal: a mask in the observation, as Gymnasium and PettingZoo give it.

An observation that is a dictionary with the key `action_mask` says which choices of each discrete
action are legal where it was made. Everything that acts or learns reads it from there, so that the
masks of stored experience are at hand wherever values of its actions are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Protocol

import numpy as np
import tensorflow as tf

from actor_learner.support import errors

KEY = "action_mask"
OBSERVATION = "observation"


class LegalChoices(Protocol):
    """Draws actions among those that observations say are legal."""

    def choose(self, observation: Any, random: np.random.Generator) -> list[np.ndarray]:
        """Draws a legal value for each component, counted from 0; int64 `[lanes, components]`.

        One array per discrete leaf of the action, for NumPy observations `[lanes, ...]`.
        """


class ActionMask:
    """Takes masks out of observations and lays them out as padded choices.

    A mask has an element for each value of each discrete component of the action, one component
    after the other: `[n]` for Discrete(n), `[n_0 + n_1]`, or a tuple of `[n_0]` and `[n_1]`, for
    MultiDiscrete. A component without any legal value, as in the last observation of an episode,
    counts as one without a mask: nothing is chosen there.

    Args:
      observation_spec: A dictionary of specs with the key `action_mask`.
      action_spec: Nest of bounded specs; its continuous leaves have no mask.

    Attributes:
      rest_spec: What is observed besides: the value of `observation` if that is all there is.

    Raises:
      errors.SpecMismatchError: If the mask does not have one element per value, or holds floats.
    """

    def __init__(self, observation_spec: Mapping[str, Any], action_spec: Any) -> None:
        counts = [_counts(leaf) for leaf in tf.nest.flatten(action_spec) if _is_discrete(leaf)]
        for leaf in tf.nest.flatten(observation_spec[KEY]):
            if tf.as_dtype(leaf.dtype).is_floating:
                raise errors.SpecMismatchError(
                    f"the observation's {KEY!r} is {leaf}: a mask holds booleans or whole numbers"
                )
        given = [leaf.shape for leaf in tf.nest.flatten(observation_spec[KEY])]
        num_given = sum(int(np.prod(shape)) for shape in given)
        expected = sum(int(count.sum()) for count in counts)
        if num_given != expected:
            raise errors.SpecMismatchError(
                f"the observation's {KEY!r} has {num_given} elements, but the discrete actions "
                f"have {expected} values in all: a mask needs one element per value"
            )
        self.rest_spec = _rest(observation_spec)
        self._mask_ranks = [len(shape) for shape in given]
        # Where each choice of the padded layout [components, depth] is in the mask.
        self._layouts: list[tuple[np.ndarray, np.ndarray]] = []
        start = 0
        for count in counts:
            depth = int(count.max())
            offsets = start + np.concatenate([[0], np.cumsum(count)[:-1]])
            index = offsets[:, np.newaxis] + np.minimum(np.arange(depth), count[:, None] - 1)
            exists = np.arange(depth) < count[:, np.newaxis]
            self._layouts.append((index, exists))
            start += int(count.sum())

    def split(self, observation: Mapping[str, Any]) -> tuple[Any, tf.Tensor]:
        """The rest of an observation, and its mask as bool `[..., components * depth]`.

        Of several discrete leaves the masks follow one another.
        """
        flat = self._flat(observation[KEY], tf)
        parts = []
        for index, exists in self._layouts:
            legal = tf.gather(flat, index, axis=-1)
            legal = tf.logical_and(legal, exists)
            none = tf.logical_not(tf.reduce_any(legal, axis=-1, keepdims=True))
            legal = tf.logical_or(legal, tf.logical_and(none, exists))
            outer = tf.shape(legal)[:-2]
            parts.append(tf.reshape(legal, tf.concat([outer, [index.size]], axis=0)))
        mask = parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)
        static = flat.shape[:-1].concatenate([sum(index.size for index, _ in self._layouts)])
        return _rest(observation), tf.ensure_shape(mask, static)

    def splitter(self, observation: Mapping[str, Any]) -> tuple[Any, Any]:
        """`split` for TF-Agents' `observation_and_action_constraint_splitter`: takes specs, too."""
        if isinstance(tf.nest.flatten(observation)[0], tf.TypeSpec):
            size = sum(index.size for index, _ in self._layouts)
            return _rest(observation), tf.TensorSpec([size], tf.bool)
        return self.split(observation)

    def choose(
        self, observation: Mapping[str, Any], random: np.random.Generator
    ) -> list[np.ndarray]:
        """See `LegalChoices`."""
        flat = self._flat(observation[KEY], np)
        chosen = []
        for index, exists in self._layouts:
            legal = flat[:, index] & exists
            legal |= ~legal.any(axis=-1, keepdims=True) & exists
            chosen.append(_draw(legal, random))
        return chosen

    def _flat(self, mask: Any, library: Any) -> Any:
        """All masks one behind the other, bool `[..., values]`."""
        parts = []
        for leaf, rank in zip(tf.nest.flatten(mask), self._mask_ranks):
            if library is np:
                leaf = np.asarray(leaf)
                parts.append(leaf.reshape(*leaf.shape[: leaf.ndim - rank], -1) != 0)
                continue
            leaf = tf.convert_to_tensor(leaf)
            if rank != 1:
                outer = tf.shape(leaf)[: leaf.shape.rank - rank]
                leaf = tf.reshape(leaf, tf.concat([outer, [-1]], axis=0))
            parts.append(tf.cast(leaf, tf.bool))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, -1) if library is np else tf.concat(parts, axis=-1)


class SplitterMask:
    """The mask of a TF-Agents policy that has an `observation_and_action_constraint_splitter`.

    Args:
      splitter: Takes an observation apart into what networks see and a mask `[lanes, actions]`.
    """

    def __init__(self, splitter: Callable[[Any], tuple[Any, Any]]) -> None:
        self._splitter = splitter

    def choose(self, observation: Any, random: np.random.Generator) -> list[np.ndarray]:
        """See `LegalChoices`."""
        legal = np.asarray(self._splitter(observation)[1]) != 0
        legal |= ~legal.any(axis=-1, keepdims=True)
        return [_draw(legal[:, np.newaxis], random)]


def for_policy(policy: Any, observation_spec: Any, action_spec: Any) -> LegalChoices | None:
    """What is legal for whoever acts in place of `policy`; None if everything is."""
    found = find(observation_spec, action_spec)
    splitter = getattr(policy, "observation_and_action_constraint_splitter", None)
    if found is None and splitter is not None:
        return SplitterMask(splitter)
    return found


def find(observation_spec: Any, action_spec: Any) -> ActionMask | None:
    """The mask that observations carry; None if they carry none, or no action is discrete."""
    if not isinstance(observation_spec, Mapping) or KEY not in observation_spec:
        return None
    if not any(_is_discrete(leaf) for leaf in tf.nest.flatten(action_spec)):
        return None
    return ActionMask(observation_spec, action_spec)


def _draw(legal: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws one of the legal values, uniformly: the largest of as many random numbers."""
    return np.where(legal, random.random(legal.shape), -1.0).argmax(axis=-1)


def _rest(observation: Mapping[str, Any]) -> Any:
    rest = {key: value for key, value in observation.items() if key != KEY}
    if list(rest) == [OBSERVATION]:
        return rest[OBSERVATION]
    return rest


def _is_discrete(spec: Any) -> bool:
    return tf.as_dtype(spec.dtype).is_integer


def _counts(spec: Any) -> np.ndarray:
    """How many values each component of a discrete leaf has, `[components]`."""
    low = np.broadcast_to(spec.minimum, spec.shape).reshape(-1).astype(np.int64)
    high = np.broadcast_to(spec.maximum, spec.shape).reshape(-1).astype(np.int64)
    return high - low + 1
