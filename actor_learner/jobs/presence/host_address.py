"""Under which name the other jobs of a run reach this machine."""

from __future__ import annotations

import os
import pathlib
import socket

from absl import logging

from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import rendezvous
from actor_learner.naming import files

_OF_ONE_MACHINE = {
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs",
    "reiserfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
}  # fmt: skip
"""File systems that no other machine sees; of one that is not listed, another may."""


def own_host(job: job_lib.Job) -> str:
    """`localhost` if all jobs must be on this machine; else the address of its network interface.

    They must be if they find one another in the run directory itself, on a disk of this machine.
    Any other registry, a Redis server or a directory, may have been chosen because jobs elsewhere
    reach it.
    """
    if job.run_dir is not None and isinstance(job.names, files.FileRegistry):
        is_default = job.names.directory == rendezvous.registry_in(job.run_dir)
        if is_default and file_system_of(job.names.directory) in _OF_ONE_MACHINE:
            return "localhost"
    address = interface_address()
    if address is None:
        logging.warning(
            "%s finds no network interface: it calls itself localhost, which no other machine can "
            "reach. Pass --host=NAME if some must",
            job,
        )
    return address or "localhost"


def interface_address() -> str | None:
    """The address of the interface that leads outside; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing: it only chooses an interface.
            return probe.getsockname()[0]
        except OSError:
            return None


def file_system_of(path: str | os.PathLike, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that holds `path`, e.g. `ext4`; empty if it cannot be told.

    Args:
      path: Exists.
      mounts: The kernel's list of what is mounted where.
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
        # The kernel writes blanks and the like in octal.
        mounted = pathlib.Path(place.split()[4].encode().decode("unicode_escape"))
        # Of two that are mounted at one place, the later hides the earlier.
        if real.is_relative_to(mounted) and len(mounted.parts) >= longest:
            found, longest = rest.split()[0], len(mounted.parts)
    return found
