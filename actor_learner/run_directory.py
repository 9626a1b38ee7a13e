"""One directory with all that a training run leaves behind."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from actor_learner import errors

_VERSIONS_OF = ("actor-learner", "tensorflow", "tf-agents", "dm-reverb", "gymnasium", "numpy")


class RunDirectory:
    """The paths inside a run directory, and its description, `run.json`.

    Nothing is written outside it. It needs no TensorFlow.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = pathlib.Path(path)

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def create(cls, path: str | None, name: str) -> RunDirectory:
        """Makes the directory of a new run.

        Args:
          path: Where, or None for a new dated directory `runs/<name>-<date>-<time>`.
          name: Name of the experiment.

        Raises:
          errors.ConfigError: If the directory already holds a run.
        """
        if path is None:
            stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
            candidate = pathlib.Path("runs") / f"{name}-{stamp}"
            number = 1
            while True:
                try:
                    candidate.mkdir(parents=True)
                    return cls(candidate)
                except FileExistsError:
                    number += 1
                    candidate = pathlib.Path("runs") / f"{name}-{stamp}-{number}"
        run = cls(path)
        if run.description.exists():
            raise errors.ConfigError(
                f"{run} already holds a run: go on with it by --resume={run}, or choose another "
                "--run_dir"
            )
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.ConfigError(f"--run_dir={path} cannot be made: {error}") from error
        return run

    @classmethod
    def existing(cls, path: str) -> RunDirectory:
        """Opens the directory of an earlier run.

        Raises:
          errors.ConfigError: If there is no run.
        """
        run = cls(path)
        if not run.description.exists():
            what = "is not a run directory" if run.path.is_dir() else "does not exist"
            raise errors.ConfigError(f"{path} {what} (it has no run.json)")
        return run

    @property
    def description(self) -> pathlib.Path:
        return self.path / "run.json"

    @property
    def config(self) -> pathlib.Path:
        """The configuration as it was given, for resuming."""
        return self.path / "config.gin"

    @property
    def operative_config(self) -> pathlib.Path:
        """Every parameter that was used, defaults included."""
        return self.path / "operative_config.gin"

    @property
    def policies(self) -> pathlib.Path:
        return self.path / "policies"

    @property
    def best(self) -> pathlib.Path:
        return self.path / "best"

    @property
    def replay(self) -> pathlib.Path:
        return self.path / "replay"

    @property
    def tensorboard(self) -> pathlib.Path:
        return self.path / "train"

    @property
    def metrics_jsonl(self) -> pathlib.Path:
        return self.path / "metrics.jsonl"

    @property
    def metrics_csv(self) -> pathlib.Path:
        return self.path / "metrics.csv"

    @property
    def curve(self) -> pathlib.Path:
        return self.path / "curve.png"

    def log(self, job: str, index: int = 0) -> pathlib.Path:
        """The log file of one job; its directory is made."""
        directory = self.path / "jobs" / f"{job}-{index}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory / "log"

    def describe(self, *, seed: int, argv: Sequence[str], **more: Any) -> None:
        """Writes `run.json`: seed, arguments, versions, commit."""
        content = {
            "seed": seed,
            "argv": list(argv),
            "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "versions": _versions(),
            "git_commit": _git_commit(),
            **more,
        }
        self._write_description(content)

    def read_description(self) -> dict[str, Any]:
        """What `describe` wrote.

        Raises:
          errors.ConfigError: If `run.json` cannot be read.
        """
        try:
            return json.loads(self.description.read_text())
        except (OSError, ValueError) as error:
            raise errors.ConfigError(f"{self.description} cannot be read: {error}") from error

    def update_description(self, **changes: Any) -> None:
        """Adds to `run.json`."""
        self._write_description({**self.read_description(), **changes})

    def _write_description(self, content: dict[str, Any]) -> None:
        temporary = self.description.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(content, indent=2) + "\n")
        os.replace(temporary, self.description)


def _versions() -> dict[str, str]:
    versions = {}
    for name in _VERSIONS_OF:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _git_commit() -> str | None:
    """The commit of the working directory's repository, with `+changes` if it is not clean."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        status = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None  # Not in a repository, or no git: a run needs neither.
    return f"{commit}+changes" if status else commit


def command_line() -> str:
    """How this process was started, for the log."""
    return " ".join(sys.argv)
