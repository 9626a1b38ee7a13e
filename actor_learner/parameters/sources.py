"""Where the values of a warm start come from: a run, a store, or a file."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

from actor_learner.parameters import parameter_errors, store

DEFAULT_NAME = "policy"
BEST = "best"

_FORMS = (
    "a run directory, STORE_OR_RUN@VERSION_OR_TAG, STORE_OR_RUN:NAME@VERSION_OR_TAG, a file of "
    "parameters (.npz) or the directory of a SavedModel"
)
_SAVED_MODEL = "saved_model.pb"


class StoreSource(NamedTuple):
    """A version in a store.

    Attributes:
      directory: The store's directory.
      name: Whose parameters.
      identifier: `latest`, a tag or a version.
    """

    directory: pathlib.Path
    name: str
    identifier: str


class FileSource(NamedTuple):
    """A file that a store has written, or `actor-learner params get`."""

    path: pathlib.Path


class SavedModelSource(NamedTuple):
    """An exported policy."""

    path: pathlib.Path


def find(
    source: str | os.PathLike, name: str = DEFAULT_NAME
) -> StoreSource | FileSource | SavedModelSource:
    """Says what `source` stands for.

    Args:
      source: A run directory: the version tagged `best` in its store, else its latest, else the
        best policy that was exported, else the last. A store's directory: its `best`, else its
        latest. `directory@tag`, `directory@version`, `directory:name`, `directory:name@tag` or
        `directory:name@version` for one version in the store of a run, or in a store. A file. An
        exported policy.
      name: Whose parameters, where `source` does not say.

    Raises:
      parameter_errors.ParametersNotFoundError: If there is nothing of the kind.
    """
    path = pathlib.Path(source)
    if path.is_file():
        return FileSource(path)
    if path.is_dir():
        return _in_directory(path, name)
    directory, at, identifier = os.fspath(source).rpartition("@")
    if at and identifier and pathlib.Path(directory).is_dir():
        return StoreSource(store.locate(directory), name, identifier)
    directory, colon, rest = os.fspath(source).rpartition(":")
    if colon and rest and pathlib.Path(directory).is_dir():
        name, _, identifier = rest.partition("@")
        return StoreSource(store.locate(directory), name, identifier or store.LATEST)
    missing = directory if colon and rest else source
    raise parameter_errors.ParametersNotFoundError(
        f"cannot start from {os.fspath(source)!r}: {os.fspath(missing)!r} does not exist; it must "
        f"be {_FORMS}"
    )


def _in_directory(path: pathlib.Path, name: str) -> StoreSource | SavedModelSource:
    if (path / _SAVED_MODEL).exists():
        return SavedModelSource(path)
    directory = store.locate(path)
    held = store.ParameterStore(directory)
    names = held.names()
    if name in names:
        tagged = any(BEST in stored.tags for stored in held.list(name))
        return StoreSource(directory, name, BEST if tagged else store.LATEST)
    exports = (path / "best" / "policy", path / "policies" / "greedy_policy")
    for export in exports:
        if (export / _SAVED_MODEL).exists():
            return SavedModelSource(export)
    there = f"only of {', '.join(names)}" if names else "none at all"
    raise parameter_errors.ParametersNotFoundError(
        f"cannot start from {path}: {directory} holds no parameters of {name!r}, {there}, and "
        f"neither {exports[0]} nor {exports[1]} is an exported policy"
    )
