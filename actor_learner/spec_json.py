"""Specs as JSON, so that experience and agents can be used without the environment of the specs."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import array_spec, tensor_spec

from actor_learner.support import errors


def encode(spec: Any) -> Any:
    """A nest of specs as what `json.dump` takes.

    Raises:
      errors.SpecMismatchError: If it holds something other than specs, or keys that are not text.
    """
    if isinstance(spec, (tf.TensorSpec, array_spec.ArraySpec)):
        return _encode_leaf(tensor_spec.from_spec(spec))
    if isinstance(spec, Mapping):
        wrong = [key for key in spec if not isinstance(key, str)]
        if wrong:
            raise errors.SpecMismatchError(f"a spec has the key {wrong[0]!r}: keys must be text")
        return {"dict": {key: encode(value) for key, value in spec.items()}}
    if isinstance(spec, tuple) and hasattr(spec, "_fields"):
        fields = {name: encode(value) for name, value in zip(spec._fields, spec)}
        return {"namedtuple": type(spec).__name__, "fields": fields}
    if isinstance(spec, (tuple, list)):
        kind = "list" if isinstance(spec, list) else "tuple"
        return {kind: [encode(value) for value in spec]}
    raise errors.SpecMismatchError(f"{spec!r} is not a spec: it cannot be described")


def decode(description: Any) -> Any:
    """The nest of tensor specs that `encode` described.

    Raises:
      errors.SpecMismatchError: If the description is none of ours.
    """
    try:
        if "spec" in description:
            return _decode_leaf(description)
        if "dict" in description:
            return {key: decode(value) for key, value in description["dict"].items()}
        if "namedtuple" in description:
            fields = {name: decode(value) for name, value in description["fields"].items()}
            return collections.namedtuple(description["namedtuple"], fields)(**fields)
        if "list" in description:
            return [decode(value) for value in description["list"]]
        return tuple(decode(value) for value in description["tuple"])
    except (KeyError, TypeError, ValueError) as error:
        raise errors.SpecMismatchError(
            f"{str(description)[:200]} describes no spec: the file was changed, or is of another "
            "version"
        ) from error


def _encode_leaf(spec: tf.TensorSpec) -> dict[str, Any]:
    described = {
        "spec": "tensor",
        "shape": spec.shape.as_list(),
        "dtype": spec.dtype.name,
        "name": spec.name,
    }
    if isinstance(spec, tensor_spec.BoundedTensorSpec):
        described["spec"] = "bounded"
        described["minimum"] = _encode_bound(spec.minimum)
        described["maximum"] = _encode_bound(spec.maximum)
    return described


def _decode_leaf(described: dict[str, Any]) -> tf.TensorSpec:
    shape, dtype = described["shape"], tf.as_dtype(described["dtype"])
    if described["spec"] == "tensor":
        return tensor_spec.TensorSpec(shape, dtype, described["name"])
    bounds = (_decode_bound(described[key], dtype) for key in ("minimum", "maximum"))
    return tensor_spec.BoundedTensorSpec(shape, dtype, *bounds, described["name"])


def _encode_bound(bound: np.ndarray) -> dict[str, Any]:
    """Its shape and values, one value if all are the same, as those of images are."""
    bound = np.asarray(bound)
    values = bound.ravel()
    if len(values) and (values == values[0]).all():
        values = values[:1]
    return {"shape": list(bound.shape), "values": [_encode_number(v) for v in values.tolist()]}


def _decode_bound(described: dict[str, Any], dtype: tf.DType) -> np.ndarray:
    shape = tuple(described["shape"])
    values = np.array([_decode_number(v) for v in described["values"]], dtype.as_numpy_dtype)
    return np.full(shape, values[0]) if len(values) == 1 else values.reshape(shape)


def _encode_number(value: Any) -> Any:
    """JSON knows no infinite numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _decode_number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value
