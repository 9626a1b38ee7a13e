"""Where the processes of a run meet, and with which keys, if nothing else is said."""

from __future__ import annotations

import pathlib

from actor_learner import run_directory
from actor_learner.messaging import keys as keys_lib


def registry_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    """Where the jobs of a run find one another."""
    return run_dir.path.absolute() / "registry"


def keys_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    """Where a launcher leaves the keys of a run whose jobs may be on several machines."""
    return run_dir.path.absolute() / "keys.json"


def keys_of(run_dir: run_directory.RunDirectory | None) -> keys_lib.RunKeys | None:
    """The keys of a run: those of the environment, else of its directory; None if there are none.

    Raises:
      errors.ConfigError: If there are some that cannot be read.
    """
    given = keys_lib.from_environment()
    if given is not None or run_dir is None or not keys_in(run_dir).exists():
        return given
    return keys_lib.RunKeys.load(keys_in(run_dir))


def make_keys(run_dir: run_directory.RunDirectory) -> keys_lib.RunKeys:
    """The keys of a run, which are made, and left in its directory, if there are none.

    Raises:
      errors.ConfigError: If there are some that cannot be read.
    """
    keys = keys_of(run_dir)
    if keys is None:
        keys = keys_lib.RunKeys.generate()
        keys.save(keys_in(run_dir))
    return keys
