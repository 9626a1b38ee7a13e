"""One directory with all that a training run leaves behind."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import platform
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from actor_learner.support import atomic, errors, redaction, unsaved

_VERSIONS_OF = ("actor-learner", "tensorflow", "tf-agents", "dm-reverb", "gymnasium", "numpy")


class RunDirectory:
    """The paths inside a run directory, and its description, `run.json`.

    Nothing is written outside it. It needs no TensorFlow.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = pathlib.Path(path)
        self._made: list[pathlib.Path] = []

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike | None,
        name: str,
        *,
        resume: str = "--resume={}",
        elsewhere: str = "another --run_dir",
    ) -> RunDirectory:
        """Makes the directory of a new run.

        Args:
          path: Where, or None for a new dated directory `runs/<name>-<date>-<time>`.
          name: Name of the experiment.
          resume: How the caller's user resumes a run, `{}` being its directory.
          elsewhere: How they choose another one.

        Raises:
          errors.ConfigError: If the directory holds a run that has been trained, or cannot be
            written to. One whose training never began is used again.
        """
        run = cls(cls._dated(name) if path is None else path)
        if run.description.exists() and run.has_checkpoints:
            raise errors.ConfigError(
                f"{run} already holds a run: resume it with {resume.format(run)}, or choose "
                f"{elsewhere}"
            )
        with run._writing():
            run._make(run.path)
        return run

    def make(self) -> None:
        """Makes the directory if it is not there, for `discard` to know that it is ours.

        Raises:
          errors.ConfigError: If it cannot be written to.
        """
        with self._writing():
            self._make(self.path)

    def _make(self, path: pathlib.Path) -> None:
        """Makes a directory and its parents, noting those that no other process made."""
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise
        except FileNotFoundError:
            if path.parent == path:
                raise
            self._make(path.parent)
            self._make(path)
        else:
            self._made.insert(0, path)

    @contextlib.contextmanager
    def discarded_if_refused(
        self, refusals: tuple[type[Exception], ...] = errors.REFUSALS
    ) -> Iterator[None]:
        """Discards the directory if what is done in it raises one of these errors.

        The caller holds the lock: what another process trains in is not ours to remove.
        """
        try:
            yield
        except refusals:
            self.discard()
            raise

    def discard(self) -> None:
        """Removes what `create` made, with parents that are empty now; never a run that trained.

        The caller holds the lock, or knows that nobody else uses the directory.
        """
        if self.path in self._made and not self.has_checkpoints and not self._has_metrics:
            shutil.rmtree(self.path, ignore_errors=True)
            with contextlib.suppress(OSError):  # Somebody else has begun to use it.
                for parent in self._made[1:]:
                    parent.rmdir()

    @staticmethod
    def _dated(name: str) -> pathlib.Path:
        """A directory that does not exist yet."""
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        candidate = pathlib.Path("runs") / f"{name}-{stamp}"
        number = 1
        while candidate.exists():
            number += 1
            candidate = pathlib.Path("runs") / f"{name}-{stamp}-{number}"
        return candidate

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

    def require_config(self) -> None:
        """Checks that the run has a configuration, which commands need to build its parts again.

        Raises:
          errors.ConfigError: If it was begun in Python, by `Experiment.train`, and has none.
        """
        if not self.config.exists():
            raise errors.ConfigError(
                f"{self} has no {self.config.name}: it was begun in Python, where its environment "
                "and agent are. There, actor_learner.load_policy acts with its policy, and "
                f"Experiment(...).train({str(self)!r}, resume=True) resumes it"
            )

    @property
    def has_checkpoints(self) -> bool:
        """Whether a learner has saved anything here."""
        # The index comes last; a process killed in its first save leaves `ckpt-1_temp` alone.
        return any((self.tensorboard / "checkpoints").glob("ckpt-*.index"))

    @property
    def _has_metrics(self) -> bool:
        """Whether a run was under way here: its file may be made, and empty, before that."""
        return self.metrics_jsonl.exists() and self.metrics_jsonl.stat().st_size > 0

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

    def run_id(self) -> str:
        """The id of the run, 32 hexadecimal digits, drawn when it is first asked for.

        The names of the run's tables carry it, so that no other run's server can be taken for ours.

        Raises:
          errors.ConfigError: If it cannot be read or written.
        """
        path = self.path / "run_id"
        drawn = atomic.temporary_sibling(path)
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                drawn.write_text(f"{uuid.uuid4().hex}\n")
                with contextlib.suppress(FileExistsError):  # Another process was faster.
                    os.link(drawn, path)
                drawn.unlink()
            return path.read_text().strip()
        except OSError as error:
            raise errors.ConfigError(f"{path}, the id of the run: {error}") from error

    @property
    def replay(self) -> pathlib.Path:
        return self.path / "replay"

    @property
    def experience(self) -> pathlib.Path:
        """Recorded experience."""
        return self.path / "experience"

    @property
    def tensorboard(self) -> pathlib.Path:
        return self.path / "train"

    @property
    def metrics_jsonl(self) -> pathlib.Path:
        return self.path / "metrics.jsonl"

    @property
    def completion(self) -> pathlib.Path:
        """Why training as separate jobs is complete."""
        return self.path / "complete.json"

    @property
    def metrics_csv(self) -> pathlib.Path:
        return self.path / "metrics.csv"

    @property
    def curve(self) -> pathlib.Path:
        return self.path / "curve.png"

    def write_text(self, path: pathlib.Path, text: str) -> None:
        """Writes one of its files, whole or not at all; on a full disk as soon as there is room."""

        def write() -> None:
            with atomic.replacing(path) as temporary:
                temporary.write_text(text)

        unsaved.ledger().attempt(path.name, write, where=path)

    def log(self, job: str, index: int = 0) -> pathlib.Path:
        """The log file of one job; its directory is made."""
        directory = self.path / "jobs" / f"{job}-{index}"
        with self._writing():
            directory.mkdir(parents=True, exist_ok=True)
        return directory / "log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from training in this directory; ends with the process at latest.

        Raises:
          errors.ConfigError: If another process holds the lock.
        """
        with self._writing():
            file = open(self.path / "lock", "a+")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise errors.ConfigError(
                    f"{self} is being trained by process {file.read().strip() or 'unknown'}: stop "
                    "that one first, or choose another --run_dir"
                ) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.ConfigError(f"{self} cannot be written to: {error}") from error

    def describe(self, *, seed: int, argv: Sequence[str], **more: Any) -> None:
        """Writes `run.json`: seed, arguments without passwords, versions, commit."""
        content = {
            "seed": seed,
            "argv": [redaction.redacted(argument) for argument in argv],
            "started": _now(),
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

    def describe_resumption(self, argv: Sequence[str]) -> None:
        """Adds to `run.json` that, when and how the run was resumed."""
        content = self.read_description()
        kept = [redaction.redacted(argument) for argument in argv]
        content.setdefault("resumed", []).append(
            {"argv": kept, "at": _now(), "git_commit": _git_commit()}
        )
        self._write_description(content)

    def _write_description(self, content: dict[str, Any]) -> None:
        temporary = self.description.with_suffix(".json.tmp")
        with self._writing():
            temporary.write_text(json.dumps(content, indent=2) + "\n")
            os.replace(temporary, self.description)


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


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
