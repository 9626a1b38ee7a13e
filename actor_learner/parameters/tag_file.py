"""The tags of a name: a file that says which version each of them points to."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping

from actor_learner.parameters import parameter_errors, version_files

FILE = "tags.json"


def read(directory: pathlib.Path) -> dict[str, str]:
    """The file that each tag points to.

    Raises:
      parameter_errors.ParameterError: If the tags are damaged.
    """
    path = directory / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        tags = json.loads(text)
        if not isinstance(tags, dict) or not all(isinstance(file, str) for file in tags.values()):
            raise ValueError("it is not a dictionary of strings")
    except ValueError as error:
        raise parameter_errors.ParameterError(
            f"{path} is damaged ({error}): remove it and tag again"
        ) from error
    return tags


def write(directory: pathlib.Path, tags: Mapping[str, str]) -> None:
    """Replaces the tags; the caller holds the directory's lock."""
    incoming = directory / f".{FILE}"
    with open(incoming, "w", encoding="utf-8") as file:
        json.dump(dict(tags), file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(incoming, directory / FILE)
    version_files.sync(directory)
