"""What goes over the wire: a small header, and arrays as raw bytes behind it.

A message is a list of frames. The first is a msgpack map that names the message, holds its plain
values and describes the arrays; each further frame is one array in row-major order. Nothing in it
is ever executed or unpickled. `decode` refuses whatever is not exactly of this form, and
`require_arrays` whatever the receiver has not asked for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from actor_learner.support import errors

FORMAT = 1
"""Raised when the layout of the header changes; messages of another format are refused."""

MAX_HEADER_BYTES = 1 << 20
MAX_ARRAYS = 4_096
MAX_DIMENSIONS = 16
MAX_ARRAY_BYTES = 1 << 40

# The kinds of array that may travel. Objects, structures and strings may not.
_DTYPES = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip


class BadMessageError(errors.ActorLearnerError):
    """Frames that are not a message of ours, or arrays other than those asked for."""


@dataclasses.dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
      kind: What it is about; picks the handler.
      body: Plain values: numbers, strings, booleans, None, lists and maps with string keys.
      arrays: By name. Those of a received message are read-only views of its frames.
      id: Matches an answer to its request; 0 where none is expected.
      error: In an answer: why the request was refused; None if it was not.
    """

    kind: str
    body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    id: int = 0
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """An array that a receiver expects.

    Attributes:
      dtype: Its type, e.g. `np.float32`.
      shape: Its shape; None stands for any size of that dimension.
    """

    dtype: Any
    shape: Sequence[int | None]


def encode(message: Message) -> list[bytes | memoryview]:
    """The frames of a message; those of arrays share their memory where they are contiguous.

    Raises:
      BadMessageError: If a value or an array cannot travel.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in message.arrays.items()}
    described = []
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES:
            raise BadMessageError(
                f"array {name!r} of message {message.kind!r} has dtype {array.dtype}, which cannot "
                f"be sent: convert it to one of {', '.join(_DTYPES)}"
            )
        # ascontiguousarray makes a scalar one-dimensional.
        described.append([name, array.dtype.name, list(np.shape(message.arrays[name]))])
    try:
        header = msgpack.packb(
            [FORMAT, message.kind, message.id, message.error, dict(message.body), described]
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise BadMessageError(
            f"the body of message {message.kind!r} holds what cannot be sent: {error}"
        ) from error
    if len(header) > MAX_HEADER_BYTES or len(arrays) > MAX_ARRAYS:
        raise BadMessageError(
            f"message {message.kind!r} has a header of {len(header):,} bytes and {len(arrays):,} "
            f"arrays; {MAX_HEADER_BYTES:,} and {MAX_ARRAYS:,} are the most"
        )
    return [header, *(array.reshape(-1).view(np.uint8).data for array in arrays.values())]


def decode(frames: Sequence[bytes | memoryview]) -> Message:
    """The message that frames hold; its arrays are read-only views of them.

    Raises:
      BadMessageError: If they are anything else.
    """
    if not frames:
        raise BadMessageError("a message without frames")
    if len(frames[0]) > MAX_HEADER_BYTES:
        raise BadMessageError(f"a header of {len(frames[0]):,} bytes")
    try:
        header = msgpack.unpackb(
            frames[0], strict_map_key=True, max_array_len=MAX_ARRAYS, max_map_len=MAX_HEADER_BYTES
        )
    except Exception as error:  # Msgpack raises a dozen kinds for bytes that are not msgpack.
        raise BadMessageError(f"a header that is not msgpack: {error}") from error
    if not isinstance(header, list) or len(header) != 6 or header[0] != FORMAT:
        raise BadMessageError(f"a header that is not of format {FORMAT}")
    _, kind, id_, error, body, described = header
    well_formed = (
        isinstance(kind, str)
        and _is_count(id_)
        and (error is None or isinstance(error, str))
        and isinstance(body, dict)
        and all(isinstance(key, str) for key in body)
        and isinstance(described, list)
    )
    if not well_formed:
        raise BadMessageError("a header whose fields have other types than a message's")
    if len(described) != len(frames) - 1:
        raise BadMessageError(f"{len(frames) - 1} arrays where the header describes others")
    arrays = {}
    for description, frame in zip(described, frames[1:]):
        name, array = _array(description, frame)
        if name in arrays:
            raise BadMessageError(f"two arrays of one name, {name[:80]!r}")
        arrays[name] = array
    return Message(kind, body, arrays, id_, error)


def require_arrays(message: Message, specs: Mapping[str, ArraySpec]) -> None:
    """Refuses arrays other than those of `specs`.

    Raises:
      BadMessageError: Names the first difference.
    """
    if message.arrays.keys() != specs.keys():
        raise BadMessageError(
            f"message {message.kind!r} has the arrays {sorted(message.arrays)}, not {sorted(specs)}"
        )
    for name, spec in specs.items():
        array = message.arrays[name]
        fits = len(array.shape) == len(spec.shape) and all(
            wanted is None or size == wanted for size, wanted in zip(array.shape, spec.shape)
        )
        if array.dtype != np.dtype(spec.dtype) or not fits:
            raise BadMessageError(
                f"array {name!r} of message {message.kind!r} is {array.dtype.name} "
                f"{array.shape}, not {np.dtype(spec.dtype).name} {tuple(spec.shape)}"
            )


def _array(description: Any, frame: bytes | memoryview) -> tuple[str, np.ndarray]:
    well_formed = (
        isinstance(description, list)
        and len(description) == 3
        and isinstance(description[0], str)
        and isinstance(description[1], str)
        and description[1] in _DTYPES
        and isinstance(description[2], list)
        and len(description[2]) <= MAX_DIMENSIONS
        and all(_is_count(size) for size in description[2])
    )
    if not well_formed:
        raise BadMessageError("an array whose description is none")
    name, dtype_name, shape = description
    dtype = _DTYPES[dtype_name]
    # NumPy counts what an array would hold if no dimension were 0.
    possible = math.prod(max(1, size) for size in shape) * dtype.itemsize <= MAX_ARRAY_BYTES
    if not possible or math.prod(shape) * dtype.itemsize != len(frame):
        raise BadMessageError(
            f"array {name[:80]!r} of {len(frame):,} bytes, described as {dtype_name} {shape}"
        )
    array = np.frombuffer(frame, dtype).reshape(shape)
    if dtype == np.bool_ and frame and array.view(np.uint8).max() > 1:
        raise BadMessageError(f"array {name[:80]!r} of booleans that are neither 0 nor 1")
    return name, array


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
