"""`ParameterStore`: versions of parameters in a directory, with tags.

    store = ParameterStore("runs/a/parameters")
    store.push("policy", {"dense/kernel": kernel}, version=1000, metadata={"mean_return": 480.0})
    store.tag("policy", 1000, "best")
    store.get("policy", "best").values["dense/kernel"]
    store.gc("policy", keep=5)

One directory per name, in it one file per push and `tags.json`. It needs no TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from actor_learner.parameters import archive, parameter_errors, version_files, versions
from actor_learner.parameters import where as where_lib
from actor_learner.support import file_lock

ParameterError = parameter_errors.ParameterError
ParametersNotFoundError = parameter_errors.ParametersNotFoundError
DamagedParametersError = parameter_errors.DamagedParametersError

Parameters = versions.Parameters
StoredVersion = versions.StoredVersion

DIRECTORY = "parameters"
"""Where the store of a run lies, in the run's directory."""

LATEST = versions.LATEST

# Each time a version that a reader has chosen is gone by the time it opens it, it chooses again.
_CHOICES = 100


class ParameterStore:
    """Parameters by name and version, for any number of processes at once.

    Versions are kept in the order they were pushed, and `latest` is the last one pushed. A learner
    that resumes from an earlier checkpoint pushes lower versions again, and these are then the
    latest. Pushing a version that is there already adds a second one, which counts from then on;
    tags stay with the one they were put on.

    A tag points to one version, a version has any number of tags. Writers replace whole files and
    readers need no lock, so that nobody ever reads half of one, whoever is killed when.

    Args:
      directory: Where; it is made by the first push. `locate` finds that of a run.
      lock_timeout: The longest wait for other writers, in seconds.
    """

    def __init__(self, directory: str | os.PathLike, *, lock_timeout: float = 30.0) -> None:
        self._directory = pathlib.Path(directory)
        self._lock_timeout = lock_timeout

    def __str__(self) -> str:
        return str(self._directory)

    @property
    def directory(self) -> pathlib.Path:
        return self._directory

    def push(
        self,
        name: str,
        values: Mapping[str, Any],
        version: int,
        *,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> StoredVersion:
        """Adds a version; when this returns it is on the disk, and what others find.

        Blocks until the disk has it: milliseconds for small networks.

        Args:
          name: Whose parameters, e.g. `policy`.
          values: Arrays of numbers by name; flat.
          version: The train step they were taken at.
          tags: Tags to put on it.
          metadata: More about it, to be written as JSON.

        Raises:
          ParameterError: If any of these cannot be stored, or the directory cannot be written.
        """
        versions.check_name(name)
        tags = tuple(versions.check_tag(tag) for tag in tags)
        version = versions.check_version(version)
        arrays = archive.prepare(values)
        text = archive.check_metadata(metadata)
        directory = self._directory / name
        what = f"pushing version {version} of {name!r}"
        with self._accessing(what):
            directory.mkdir(parents=True, exist_ok=True)
            with version_files.incoming(directory, self._lock_timeout) as file:
                archive.write(
                    file, arrays, name=name, version=version, metadata=text, created=time.time()
                )
                with self._changing(directory, what):
                    path = version_files.next_path(directory, version)
                    os.replace(file.name, path)
                    version_files.sync(directory)
                    if tags:
                        pointing = dict.fromkeys(tags, path.name)
                        version_files.write_tags(
                            directory, {**version_files.read_tags(directory), **pointing}
                        )
                    return self._stored(path, version_files.read_tags(directory))

    def get(self, name: str, identifier: str | int = LATEST) -> Parameters:
        """Reads a version.

        Args:
          name: Whose parameters.
          identifier: `latest`, a tag, or a version. If the latest is damaged, the newest sound one
            is returned, with a warning in the log.

        Raises:
          ParametersNotFoundError: If there is no such version.
          DamagedParametersError: If the version or tag asked for is damaged, or all are.
        """
        versions.check_name(name)
        missing: pathlib.Path | None = None
        with self._accessing(f"reading {identifier!r} of {name!r}"):
            for _ in range(_CHOICES):
                paths = self._choose(name, identifier)
                if missing is not None and paths[0] == missing:
                    raise ParametersNotFoundError(
                        f"{identifier!r} of {name!r} in {self} is {missing.name}, which somebody "
                        "has removed by hand"
                    )
                try:
                    return self._first_sound(paths, name, identifier)
                except FileNotFoundError:
                    missing = paths[0]  # Collected since it was chosen.
        raise ParameterError(
            f"{self}: each of {_CHOICES} versions of {name!r} that were chosen as {identifier!r} "
            "was removed before it could be opened: gc runs too often, or keeps too few"
        )

    def list(self, name: str, where: str | None = None) -> tuple[StoredVersion, ...]:
        """All versions, the last pushed first; the arrays are not read.

        Args:
          name: Whose parameters.
          where: A condition that they must fulfil, such as `win_rate > 0.6`: see `where.parse`.

        Raises:
          ParametersNotFoundError: If there is none.
          ParameterError: If `where` is not a condition.
        """
        versions.check_name(name)
        fulfils = None if where is None else where_lib.parse(where)
        found = []
        with self._accessing(f"listing {name!r}"):
            directory = self._require_some(name)
            paths = version_files.in_order(directory)[::-1]
            tags = version_files.read_tags(directory)
            for path in paths:
                with contextlib.suppress(FileNotFoundError):  # Collected meanwhile.
                    found.append(self._stored(path, tags))
        return tuple(stored for stored in found if fulfils is None or fulfils(stored))

    def tags(self, name: str) -> dict[str, int]:
        """The version that each tag points to; none if there are no such parameters."""
        versions.check_name(name)
        with self._accessing(f"reading the tags of {name!r}"):
            pointing = version_files.read_tags(self._directory / name)
        return {tag: version_files.version_of(pathlib.Path(file)) for tag, file in pointing.items()}

    def names(self) -> tuple[str, ...]:
        """The names that have versions, sorted."""
        if not self._directory.is_dir():
            return ()
        with self._accessing("listing the names"):
            found = [path for path in self._directory.iterdir() if versions.is_word(path.name)]
            return tuple(sorted(path.name for path in found if version_files.in_order(path)))

    def tag(self, name: str, version: int, tag: str) -> None:
        """Puts a tag on a version, and takes it off the one that had it.

        Raises:
          ParametersNotFoundError: If there is no such version.
        """
        versions.check_name(name)
        versions.check_tag(tag)
        version = versions.check_version(version)
        directory = self._require_some(name)
        with self._changing(directory, f"tagging {name!r}"):
            path = self._choose(name, version)[0]
            version_files.write_tags(
                directory, {**version_files.read_tags(directory), tag: path.name}
            )

    def untag(self, name: str, tag: str) -> None:
        """Takes a tag off whichever version has it.

        Raises:
          ParametersNotFoundError: If none has.
        """
        versions.check_name(name)
        versions.check_tag(tag)
        directory = self._require_some(name)
        with self._changing(directory, f"untagging {name!r}"):
            tags = version_files.read_tags(directory)
            if tag not in tags:
                raise self._not_found(name, tag)
            version_files.write_tags(
                directory, {key: file for key, file in tags.items() if key != tag}
            )

    def gc(self, name: str, keep: int) -> tuple[int, ...]:
        """Removes all versions but those with tags and the last `keep` of the others.

        Versions that are seen to be damaged do not count among those kept, and stay for whoever
        looks into it. What killed writers have left is removed, too.

        Returns:
          The versions that were removed, the last pushed first.

        Raises:
          ParameterError: If `keep` is less than 1.
        """
        versions.check_name(name)
        if keep < 1:
            raise ParameterError(
                f"gc of {name!r} cannot keep {keep} versions: the latest always stays; give 1 or "
                "more"
            )
        directory = self._require_some(name)
        removed = []
        with self._changing(directory, f"gc of {name!r}"):
            tagged = set(version_files.read_tags(directory).values())
            for path in reversed(version_files.in_order(directory)):
                if self._stored(path, {}).damage is not None:
                    continue
                if path.name in tagged:
                    continue
                if keep > 0:
                    keep -= 1
                else:
                    path.unlink()
                    removed.append(version_files.version_of(path))
            version_files.remove_abandoned(directory)
        return tuple(removed)

    def _choose(self, name: str, identifier: str | int) -> Sequence[pathlib.Path]:
        """The files to try, in this order; more than one only for the latest."""
        directory = self._require_some(name)
        if not versions.is_version(identifier) and identifier != LATEST:
            tags = version_files.read_tags(directory)
            if identifier not in tags:
                raise self._not_found(name, identifier)
            return [directory / tags[str(identifier)]]
        files = version_files.in_order(directory)[::-1]
        if identifier == LATEST:
            return files
        chosen = [path for path in files if version_files.version_of(path) == int(identifier)]
        if not chosen:
            raise self._not_found(name, identifier)
        return chosen[:1]

    def _first_sound(
        self, paths: Sequence[pathlib.Path], name: str, identifier: str | int
    ) -> Parameters:
        damages = []
        for path in paths:
            try:
                return self._load(path)
            except DamagedParametersError as error:
                damages.append(error)
                if len(paths) > 1:
                    logging.warning("An older version of %s is used instead: %s", name, error)
        if identifier != LATEST:
            raise DamagedParametersError(
                f"{identifier!r} of {name!r} cannot be read: {damages[0]}. Ask for another "
                f"version of {self}, or for {LATEST!r}, which looks for the newest sound one"
            )
        told = "".join(f"\n  {error}" for error in damages)
        raise DamagedParametersError(f"no version of {name!r} in {self} can be read:{told}")

    def _load(self, path: pathlib.Path) -> Parameters:
        header, values = archive.read(path)
        if header.version != version_files.version_of(path):
            raise DamagedParametersError(f"{path} holds version {header.version}: it was renamed")
        tags = _tags_of(path, version_files.read_tags(path.parent))
        return Parameters(header.version, values, tags, header.metadata, header.created)

    def _stored(self, path: pathlib.Path, tags: Mapping[str, str]) -> StoredVersion:
        size = path.stat().st_size
        common: dict[str, Any] = {
            "version": version_files.version_of(path),
            "tags": _tags_of(path, tags),
            "path": path,
        }
        try:
            header = archive.read_header(path)
        except DamagedParametersError as error:
            return StoredVersion(**common, metadata={}, created=None, size=size, damage=str(error))
        return StoredVersion(
            **common, metadata=header.metadata, created=header.created, size=size, damage=None
        )

    @contextlib.contextmanager
    def _changing(self, directory: pathlib.Path, what: str) -> Iterator[None]:
        with self._accessing(what):
            with version_files.locked(directory, f"{what} in {self}", self._lock_timeout):
                yield

    @contextlib.contextmanager
    def _accessing(self, what: str) -> Iterator[None]:
        try:
            yield
        except file_lock.LockTimeoutError as error:
            raise ParameterError(f"{what} in {self} is blocked: {error}") from error
        except OSError as error:
            raise ParameterError(f"{what} in {self} has failed: {error}") from error

    def _require_some(self, name: str) -> pathlib.Path:
        directory = self._directory / name
        if version_files.in_order(directory):
            return directory
        names = self.names()
        there = f"there are {', '.join(names)}" if names else "it holds no parameters"
        if not self._directory.is_dir():
            there = "the directory does not exist"
        raise ParametersNotFoundError(f"{self} has no parameters of the name {name!r}: {there}")

    def _not_found(self, name: str, identifier: str | int) -> ParametersNotFoundError:
        directory = self._directory / name
        files = version_files.in_order(directory)[::-1]
        shown = ", ".join(str(version_files.version_of(path)) for path in files[:10])
        shown += ", ..." if len(files) > 10 else ""
        tags = ", ".join(sorted(version_files.read_tags(directory))) or "none"
        kind = "version" if versions.is_version(identifier) else "tag"
        return ParametersNotFoundError(
            f"{name!r} in {self} has no {kind} {identifier!r}; versions: {shown}; tags: {tags}"
        )


def locate(path: str | os.PathLike) -> pathlib.Path:
    """The directory of the store that is meant: that of a run, or `path` itself."""
    path = pathlib.Path(path)
    inside = path / DIRECTORY
    return inside if inside.is_dir() or (path / "run.json").exists() else path


def _tags_of(path: pathlib.Path, tags: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(tag for tag, file in tags.items() if file == path.name))
