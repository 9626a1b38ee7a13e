"""How the jobs of a run meet: its default registry and keys, and the address of this machine."""

from __future__ import annotations

import os
import pathlib
import socket

from absl import logging

from actor_learner import run_directory
from actor_learner.jobs import job as job_lib
from actor_learner.messaging import keys as keys_lib
from actor_learner.naming import files

_OF_ONE_MACHINE = {
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs",
    "reiserfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
}  # fmt: skip
"""File systems that no other machine sees; one that is not listed may be shared."""


def registry_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    """Returns the registry in which the jobs of a run find one another by default."""
    return run_dir.path.absolute() / "registry"


def keys_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    """Returns the file in which a launcher leaves the keys of a run on several machines."""
    return run_dir.path.absolute() / "keys.json"


def keys_of(run_dir: run_directory.RunDirectory | None) -> keys_lib.RunKeys | None:
    """Returns the keys of a run: from the environment, else from its directory; None without.

    Raises:
      errors.ConfigError: If they cannot be read.
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


def own_host(job: job_lib.Job) -> str:
    """Returns `localhost` if all jobs must be here; else the address of the network interface.

    They must be here if the registry is in the run directory, on a disk of this machine. Any other
    registry, a Redis server or a directory, may have been chosen so that other machines reach it.
    """
    if job.run_dir is not None and isinstance(job.names, files.FileRegistry):
        is_default = job.names.directory == registry_in(job.run_dir)
        if is_default and file_system_of(job.names.directory) in _OF_ONE_MACHINE:
            return "localhost"
    address = interface_address()
    if address is None:
        logging.warning(
            "%s finds no network interface and uses localhost, which no other machine can reach. "
            "Pass --host=NAME if other machines must reach it",
            job,
        )
    return address or "localhost"


def interface_address() -> str | None:
    """Returns the address of the interface of the default route; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing: only chooses an interface.
            return probe.getsockname()[0]
        except OSError:
            return None


def file_system_of(path: str | os.PathLike, mounts: str = "/proc/self/mountinfo") -> str:
    """Returns the type of the file system that holds `path`, e.g. `ext4`; empty if unknown.

    Args:
      path: Must exist.
      mounts: The kernel's list of mounts.
    """
    real = pathlib.Path(path).resolve()
    found, longest = "", -1
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in lines:
        place, _, rest = line.partition(" - ")
        # The kernel writes spaces and the like in octal.
        mounted = pathlib.Path(place.split()[4].encode().decode("unicode_escape"))
        # A later mount hides an earlier one at the same place.
        if real.is_relative_to(mounted) and len(mounted.parts) >= longest:
            found, longest = rest.split()[0], len(mounted.parts)
    return found
