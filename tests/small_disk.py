"""A file system of a few megabytes, real, to fill up: tmpfs in a mount namespace of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

_BALLAST = "ballast"


class SmallDisk:
    """Mounted until `close`, in a namespace that a process of its own keeps alive.

    Args:
      mount_point: An empty directory.
      megabytes: Its size.

    Attributes:
      path: The file system as this process sees it; good for all but `flock` across namespaces.
      mount_point: The file system as commands that are given to `command` see it.
    """

    def __init__(self, mount_point: pathlib.Path, megabytes: float) -> None:
        self.mount_point = mount_point
        self._unprivileged = ["--map-root-user"] if os.geteuid() else []
        mount = f'mount -t tmpfs -o size={int(megabytes * 2**20)} tmpfs "$0" && echo up && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", *self._unprivileged, "sh", "-c", mount, str(mount_point)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._holder.stdout.readline() != "up\n":
            reason = self._holder.communicate()[1].strip()
            pytest.skip(f"a small file system cannot be mounted here: {reason}")
        self.path = pathlib.Path(f"/proc/{self._holder.pid}/root{mount_point}")

    def command(self, *arguments: str) -> list[str]:
        """The command that runs another one where the file system is mounted."""
        user = ["--user", "--preserve-credentials"] if self._unprivileged else []
        target = ["--target", str(self._holder.pid), "--mount", *user]
        return ["nsenter", *target, f"--wd={os.getcwd()}", "--", *arguments]

    def fill(self) -> None:
        """Takes all the room that is left, and all that becomes free meanwhile."""
        with open(self.path / _BALLAST, "ab", buffering=0) as file:
            for size in (2**16, 2**12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass

    def free(self) -> None:
        """Gives it back."""
        (self.path / _BALLAST).unlink()

    def close(self) -> None:
        self._holder.stdin.close()
        self._holder.wait(30)


@pytest.fixture
def small_disk(tmp_path):
    """Eight megabytes."""
    (tmp_path / "disk").mkdir()
    disk = SmallDisk(tmp_path / "disk", 8)
    yield disk
    disk.close()
