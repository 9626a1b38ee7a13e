"""Gymnasium spaces as TF-Agents array specs, and the array conversions that follow from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Callable

import numpy as np
from gymnasium import spaces
from tf_agents.specs import array_spec

from actor_learner.environments import nests
from actor_learner.support import errors

SpecNest = Any  # An ArraySpec, or a dict or tuple of SpecNests.
DtypeMap = Mapping[type, Any]  # Gymnasium space class -> NumPy dtype.

_REMEDIES = {
    "Text": "turn the string into an array of fixed shape with {transform}",
    "Sequence": "pad the sequence to a fixed length with {transform}",
    "Graph": "pad nodes and edges into arrays of fixed shape with {transform}",
    "OneOf": "put all alternatives side by side in a Dict space with {transform}",
}


def space_to_spec(
    space: spaces.Space,
    name: str | None = None,
    *,
    zero_based: bool = False,
    dtype_map: DtypeMap | None = None,
    simplify_box_bounds: bool = True,
) -> SpecNest:
    """Converts a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple space.

    Args:
      space: The space of one lane.
      name: Name of the spec; the parts of a Dict or Tuple get `name/key`, `name/0`, ...
      zero_based: Whether Discrete and MultiDiscrete spaces are given as `[0, n - 1]` whatever their
        `start`, as TF-Agents' agents require of actions. Otherwise they keep their own bounds.
      dtype_map: Dtypes to use instead of the spaces' own, by space class.
      simplify_box_bounds: Whether bounds that are the same for all elements become scalars.

    Returns:
      A BoundedArraySpec (an ArraySpec for boolean boxes, which have no bounds), or a dict or tuple
      of these, with the spaces' dtypes.

    Raises:
      errors.SpecMismatchError: If a space, at any depth, has no fixed shape. The message names the
        space, its path, and a Gymnasium wrapper that helps.
    """

    def convert(space: spaces.Space, name: str | None, path: str) -> SpecNest:
        if isinstance(space, spaces.Dict):
            _require_entries(space, path)
            return {
                key: convert(child, _child_name(name, key), f"{path}[{key!r}]")
                for key, child in space.spaces.items()
            }
        if isinstance(space, spaces.Tuple):
            _require_entries(space, path)
            return tuple(
                convert(child, _child_name(name, i), f"{path}[{i}]")
                for i, child in enumerate(space.spaces)
            )
        return _leaf_spec(space, name, path, zero_based, dtype_map or {}, simplify_box_bounds)

    return convert(space, name, name or "space")


@dataclasses.dataclass(frozen=True)
class _ActionLeaf:
    """How one array of an action nest reaches the environment."""

    path: str
    shape: tuple[int, ...]  # With the leading [lanes], if there are lanes.
    dtype: np.dtype
    start: np.ndarray | None  # Added to zero-based actions; None where it is zero.
    scalar: bool  # Whether it becomes a NumPy scalar, which is hashable, unlike an array.


def compile_action(space: spaces.Space, num_lanes: int | None) -> Callable[[Any], Any]:
    """Returns the function from actions of the zero-based spec to actions of `space`.

    It checks shapes, converts dtypes where they differ and adds `start`. Where nothing has to
    change the array passed in is handed on, not copied.

    Args:
      space: The action space of one lane.
      num_lanes: Leading dimension of every array; None for one environment without that dimension
        (Discrete actions are then NumPy scalars, which environments use as keys).
    """
    leading = () if num_lanes is None else (num_lanes,)

    def leaves(space: spaces.Space, path: str) -> Any:
        if isinstance(space, spaces.Dict):
            return {k: leaves(child, f"{path}[{k!r}]") for k, child in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(leaves(child, f"{path}[{i}]") for i, child in enumerate(space.spaces))
        start = np.asarray(getattr(space, "start", 0), dtype=space.dtype)
        return _ActionLeaf(
            path=path,
            shape=leading + tuple(space.shape),
            dtype=np.dtype(space.dtype),
            start=start if np.any(start) else None,
            scalar=num_lanes is None and isinstance(space, spaces.Discrete),
        )

    encode = nests.compile_map(leaves(space, "action"), _compile_action_leaf)

    def encode_action(action: Any) -> Any:
        try:
            return encode(action)
        except (KeyError, IndexError, TypeError) as error:
            raise errors.SpecMismatchError(
                f"the action {action!r} does not have the structure of the action spec of {space}: "
                f"{type(error).__name__}: {error}; a policy must return what action_spec() says"
            ) from error

    return encode_action


def compile_observation(spec: SpecNest, *, match_dtype: bool = True) -> Callable[[Any], Any]:
    """Returns the function that copies observations into fresh arrays, of the spec's dtypes.

    With `match_dtype=False` they keep the dtypes they come with.
    """

    def leaf(leaf_spec: array_spec.ArraySpec) -> Callable[[Any], np.ndarray]:
        dtype = leaf_spec.dtype if match_dtype else None
        # In C order, whatever the environment's: all who read them copy them once more.
        return lambda value: np.array(value, dtype=dtype, order="C")

    return nests.compile_map(spec, leaf)


def _compile_action_leaf(leaf: _ActionLeaf) -> Callable[[Any], np.ndarray]:
    shape, dtype, start, scalar = leaf.shape, leaf.dtype, leaf.start, leaf.scalar

    def encode(value: Any) -> np.ndarray:
        value = np.asarray(value)
        if value.shape != shape:
            raise errors.SpecMismatchError(
                f"{leaf.path} has shape {value.shape}, the environment expects {shape}"
            )
        if value.dtype != dtype:
            if value.dtype.kind == "f" and dtype.kind != "f":
                raise errors.SpecMismatchError(
                    f"{leaf.path} has dtype {value.dtype}, the environment expects {dtype}: "
                    "rounding it would hide a mistake in the policy"
                )
            value = value.astype(dtype)
        if start is not None:
            value = value + start
        return value[()] if scalar else value

    return encode


def _leaf_spec(
    space: spaces.Space,
    name: str | None,
    path: str,
    zero_based: bool,
    dtype_map: DtypeMap,
    simplify_box_bounds: bool,
) -> array_spec.ArraySpec:
    mapped = [dtype_map[kind] for kind in type(space).__mro__ if kind in dtype_map]
    dtype = np.dtype(mapped[0] if mapped else space.dtype or object)
    if isinstance(space, spaces.Discrete):
        minimum = 0 if zero_based else int(space.start)
        maximum = minimum + int(space.n) - 1
        return array_spec.BoundedArraySpec((), dtype, minimum, maximum, name)
    if isinstance(space, spaces.MultiDiscrete):
        low = np.zeros_like(space.nvec) if zero_based else np.asarray(space.start)
        minimum, maximum = _simplified(low, low + space.nvec - 1)
        return array_spec.BoundedArraySpec(space.shape, dtype, minimum, maximum, name)
    if isinstance(space, spaces.MultiBinary):
        return array_spec.BoundedArraySpec(space.shape, dtype, 0, 1, name)
    if isinstance(space, spaces.Box):
        if dtype == np.bool_:
            return array_spec.ArraySpec(space.shape, dtype, name)
        minimum, maximum = (_as_bound(bound, dtype) for bound in (space.low, space.high))
        if simplify_box_bounds:
            minimum, maximum = _simplified(minimum, maximum)
        return array_spec.BoundedArraySpec(space.shape, dtype, minimum, maximum, name)
    raise errors.SpecMismatchError(
        f"{path} is {space}: {type(space).__name__} spaces have no fixed shape, so they cannot be "
        f"batched or stored; {_remedy(space, path)}"
    )


def _as_bound(bound: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`bound` in a dtype that may not reach as far (`dtype_map` asks for any)."""
    if bound.dtype == dtype or dtype.kind not in "iu":
        return bound.astype(dtype)
    limits = np.iinfo(dtype)
    values = [
        limits.min if x <= limits.min else limits.max if x >= limits.max else int(x)
        for x in bound.flat
    ]
    return np.array(values, dtype=dtype).reshape(bound.shape)


def _simplified(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scalar bounds if both are the same for all elements: shorter specs, same meaning."""
    if low.size and np.all(low == low.flat[0]) and np.all(high == high.flat[0]):
        return np.asarray(low.flat[0]), np.asarray(high.flat[0])
    return low, high


def _remedy(space: spaces.Space, path: str) -> str:
    side = "Action" if path.startswith("action") else "Observation"
    transform = f"gymnasium.wrappers.Transform{side}"
    remedy = _REMEDIES.get(
        type(space).__name__, "map it to a Box, Discrete, Dict or Tuple space with {transform}"
    ).format(transform=transform)
    if "[" in path and side == "Observation":
        remedy += ", or leave this entry out with gymnasium.wrappers.FilterObservation"
    return remedy


def _require_entries(space: spaces.Dict | spaces.Tuple, path: str) -> None:
    if not len(space.spaces):
        raise errors.SpecMismatchError(
            f"{path} is {space}, which has no entries; leave it out of the space, for instance "
            "with gymnasium.wrappers.FilterObservation"
        )


def _child_name(name: str | None, key: Any) -> str:
    return str(key) if name is None else f"{name}/{key}"
