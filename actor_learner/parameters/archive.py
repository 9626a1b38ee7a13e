"""One version of parameters in one file: an `.npz` that anything with NumPy can open.

Beside the arrays it holds `parameters.json`: name, version, time, metadata, and the type and shape
of each array. Types that NumPy itself does not know, such as bfloat16, are stored as unsigned
integers of the same size. Nothing is pickled. The checksums of the zip format cover every byte that
matters, and reading checks them all.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pathlib
import time
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from actor_learner.parameters import parameter_errors
from actor_learner.support import finite

HEADER = "parameters.json"
_FORMAT = 1
_ARRAY = ".npy"
_PLAIN_KINDS = "biufc"  # Booleans, integers, floats, complex numbers.


class Header(NamedTuple):
    """What a file says about itself.

    Attributes:
      name: Under which name it was pushed.
      version: The version.
      created: When, in seconds since 1970.
      metadata: What was pushed with it.
      arrays: Type and shape of each array.
    """

    name: str
    version: int
    created: float
    metadata: dict[str, Any]
    arrays: dict[str, tuple[str, tuple[int, ...]]]


def prepare(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Takes anything that can be seen as arrays; what it returns can be written.

    Raises:
      parameter_errors.ParameterError: If `values` is not a flat dictionary of numeric arrays, or
        one of them is not finite.
    """
    if not isinstance(values, Mapping) or not values:
        raise parameter_errors.ParameterError(
            f"parameters must be a dictionary of names and arrays, not empty; got "
            f"{type(values).__name__} of {len(values) if hasattr(values, '__len__') else 0}"
        )
    arrays = {}
    for name, value in values.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise parameter_errors.ParameterError(
                f"{name!r} cannot be the name of a parameter: it must be a string, in one line"
            )
        array = np.asarray(value)
        if array.dtype.kind not in _PLAIN_KINDS and not _is_extension(array.dtype):
            raise parameter_errors.ParameterError(
                f"parameter {name!r} is of type {array.dtype}, which cannot be stored: parameters "
                "are numbers. Flatten nested structures first, and leave strings out"
            )
        arrays[name] = array
    problem = finite.first_not_finite(arrays.items())
    if problem is not None:
        raise parameter_errors.NotFiniteParametersError(
            f"parameter {problem} is not finite: training has diverged, and nobody could use it"
        )
    return arrays


def check_metadata(metadata: Mapping[str, Any] | None) -> str:
    """Metadata as JSON.

    Raises:
      parameter_errors.ParameterError: If they cannot be written as JSON.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise parameter_errors.ParameterError(
            f"metadata must be a dictionary, got {type(metadata).__name__}"
        )
    try:
        return json.dumps(dict(metadata or {}), default=_plain_number)
    except (TypeError, ValueError) as error:
        raise parameter_errors.ParameterError(
            f"metadata {dict(metadata)!r} cannot be written as JSON: {error}"
        ) from error


def write(
    file: BinaryIO,
    arrays: Mapping[str, np.ndarray],
    *,
    name: str,
    version: int,
    metadata: str,
    created: float,
) -> None:
    """Writes what `prepare` and `check_metadata` have returned, and has it reach the disk."""
    header = {
        "format": _FORMAT,
        "name": name,
        "version": version,
        "created": created,
        "metadata": json.loads(metadata),
        "arrays": {key: [array.dtype.name, array.shape] for key, array in arrays.items()},
    }
    with zipfile.ZipFile(file, "w") as archive:
        # First, so that listing reads little.
        archive.writestr(zipfile.ZipInfo(HEADER), json.dumps(header))
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(key + _ARRAY), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _storable(array), allow_pickle=False)
    file.flush()
    os.fsync(file.fileno())


def save(
    path: str | os.PathLike,
    values: Mapping[str, Any],
    *,
    name: str,
    version: int,
    metadata: Mapping[str, Any] | None = None,
    created: float | None = None,
) -> None:
    """Writes a new file outside of any store; it is there when it is whole.

    Raises:
      parameter_errors.ParameterError: If the file exists, or cannot be written.
    """
    path = pathlib.Path(path)
    arrays = prepare(values)
    text = check_metadata(metadata)
    created = time.time() if created is None else created
    incoming = path.with_name(f".{os.getpid()}.{path.name}")
    if path.exists():
        raise parameter_errors.ParameterError(f"{path} exists already: choose another file")
    try:
        with open(incoming, "wb") as file:
            write(file, arrays, name=name, version=version, metadata=text, created=created)
        os.replace(incoming, path)
    except OSError as error:
        raise parameter_errors.ParameterError(f"{path} cannot be written: {error}") from error
    finally:
        incoming.unlink(missing_ok=True)


def read_header(path: str | os.PathLike) -> Header:
    """Reads what a file says about itself, and not the arrays.

    Raises:
      FileNotFoundError: If there is no such file.
      parameter_errors.DamagedParametersError: If it cannot be read. Damage of the arrays is only
        found by `read`.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _header(archive)
        except Exception as error:  # noqa: BLE001 - damaged zip files fail in many ways.
            raise _damaged(path, error) from error


def read(path: str | os.PathLike) -> tuple[Header, dict[str, np.ndarray]]:
    """Reads and checks a whole file.

    Raises:
      FileNotFoundError: If there is no such file.
      parameter_errors.DamagedParametersError: If it is not what was written.
    """
    with open(path, "rb") as file:
        content = io.BytesIO(file.read())
    try:
        with zipfile.ZipFile(content) as archive:
            header = _header(archive)
            members = sorted(info.filename for info in archive.infolist())
            expected = sorted([HEADER, *(key + _ARRAY for key in header.arrays)])
            if members != expected:
                raise ValueError(f"it holds {members} instead of {expected}")
            arrays = {key: _array(archive, key, header) for key in header.arrays}
        problem = finite.first_not_finite(arrays.items())
        if problem is not None:
            raise ValueError(f"parameter {problem} is not finite")
        return header, arrays
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged zip files fail in many ways.
        raise _damaged(path, error) from error


def _header(archive: zipfile.ZipFile) -> Header:
    content = json.loads(archive.read(HEADER))
    if content["format"] != _FORMAT:
        raise ValueError(f"it has format {content['format']}; this version of the package reads 1")
    arrays = {key: (dtype, tuple(shape)) for key, (dtype, shape) in content["arrays"].items()}
    return Header(
        content["name"], content["version"], content["created"], content["metadata"], arrays
    )


def _array(archive: zipfile.ZipFile, key: str, header: Header) -> np.ndarray:
    dtype, shape = header.arrays[key]
    # All at once: the checksum has been compared before any of it is believed.
    stored = io.BytesIO(archive.read(key + _ARRAY))
    array = np.lib.format.read_array(stored, allow_pickle=False)
    if array.dtype.name != dtype:
        array = array.view(_extension(dtype))
    if array.shape != shape:
        raise ValueError(f"{key!r} has shape {array.shape} instead of {shape}")
    return array


def _damaged(path: str | os.PathLike, error: Exception) -> parameter_errors.DamagedParametersError:
    why = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
    return parameter_errors.DamagedParametersError(
        f"{os.fspath(path)} is damaged, or not a file of parameters ({why})"
    )


def _is_extension(dtype: np.dtype) -> bool:
    return dtype.names is None and dtype.type.__module__.split(".")[0] == "ml_dtypes"


def _extension(name: str) -> np.dtype:
    """The type of this name that TensorFlow has added to NumPy's."""
    return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


def _storable(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}") if _is_extension(array.dtype) else array


def _plain_number(value: Any) -> Any:
    """NumPy's and TensorFlow's numbers as Python's."""
    array = np.asarray(value)
    if array.dtype.kind in _PLAIN_KINDS and array.ndim == 0:
        return array.item()
    raise TypeError(f"{value!r} is a {type(value).__name__}")
