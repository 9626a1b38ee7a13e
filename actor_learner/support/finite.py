"""Tells whether arrays hold finite numbers only, cheaply; and what they hold if they do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from actor_learner.support import errors


def is_finite(array: np.ndarray) -> bool:
    """Whether no element is NaN or infinite; true of types that cannot be."""
    if not _can_be_infinite(array):
        return True
    # A sum takes no memory and is finite nearly always; if it is not, it may have overflowed.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def first_not_finite(arrays: Iterable[tuple[str, Any]]) -> str | None:
    """Describes the first of the named arrays that is not finite; None if all are."""
    for name, values in arrays:
        # Variables of several replicas are arrays by their method only.
        array = values.numpy() if hasattr(values, "numpy") else np.asarray(values)
        if not is_finite(array):
            return f"{name} ({describe(array)})"
    return None


def require_finite(variables: Iterable[Any], what: str) -> None:
    """Refuses variables of which one is not finite.

    Args:
      variables: TensorFlow's, or others with a name that NumPy can read.
      what: What is to be done with them, such as "the policy is not exported to runs/a".

    Raises:
      errors.NotFiniteError: Names the variable.
    """
    problem = first_not_finite((variable.name, variable) for variable in variables)
    if problem is not None:
        raise errors.NotFiniteError(f"{what}: {problem} is not finite; training has diverged")


def describe(array: np.ndarray) -> str:
    """The range of the finite numbers in an array, and how many others there are."""
    if not array.size:
        return "empty"
    if not _can_be_infinite(array):
        return f"{array.min()} to {array.max()}"
    array = array.astype(np.float64)
    finite = array[np.isfinite(array)]
    parts = [f"{finite.min():g} to {finite.max():g}" if finite.size else "no finite number"]
    for name, count in (("NaN", np.isnan(array).sum()), ("infinite", np.isinf(array).sum())):
        if count:
            parts.append(f"{count} of {array.size} {name}")
    return ", ".join(parts)


def _can_be_infinite(array: np.ndarray) -> bool:
    # TensorFlow's own types, such as bfloat16, are of kind V.
    return array.dtype.kind in "fcV" and array.dtype.names is None
