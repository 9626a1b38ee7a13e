"""The configuration of a run, copied into its directory when it begins.

All jobs of a run read this copy: one that is restarted next week, or on another machine, must not
see what has been changed in the original meanwhile. The files stay as they are, comments and all;
only their includes are made to name the copies:

    config.gin                       includes what follows, in order
    config/00-dqn_cartpole.gin       a file given by --gin_file
    config/01-base.gin               a file it includes
    config/02-binding.gin            one --gin_param
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from actor_learner import config, run_directory
from actor_learner.configuring import files, statements
from actor_learner.support import errors

FOLDER = "config"


def write(run_dir: run_directory.RunDirectory, source: config.ConfigSource) -> None:
    """Copies a configuration, which must have passed `config.check`, into a run directory."""
    copies = _Copies(0)
    names = [copies.add(config.find(gin_file)) for gin_file in source.gin_files]
    names += [copies.add_binding(binding) for binding in source.bindings]
    _write_all(run_dir, copies, _includes(names))


def extend(run_dir: run_directory.RunDirectory, bindings: Sequence[str]) -> None:
    """Adds bindings, stronger than all before, to the configuration of a run directory."""
    if not bindings:
        return
    copies = _Copies(len(list((run_dir.path / FOLDER).glob("*.gin"))))
    names = [copies.add_binding(binding) for binding in bindings]
    before = run_dir.config.read_text(encoding="utf-8").rstrip("\n")
    _write_all(run_dir, copies, f"{before}\n{_includes(names)}")


def contents(run_dir: run_directory.RunDirectory) -> dict[str, str]:
    """All files of a run's configuration, by their paths within the run directory."""
    found = [run_dir.config, *sorted((run_dir.path / FOLDER).glob("*.gin"))]
    return {
        path.relative_to(run_dir.path).as_posix(): path.read_text(encoding="utf-8")
        for path in found
    }


class _Copies:
    """Files to be written into the folder, by name."""

    def __init__(self, first: int) -> None:
        self.texts: dict[str, str] = {}
        self._first = first
        self._names: dict[str, str] = {}

    def add(self, path: str) -> str:
        """Copies a file and all it includes; returns the name of the copy."""
        if path in self._names:
            return self._names[path]
        name = self._new(pathlib.Path(path).stem)
        self._names[path] = name
        content = pathlib.Path(path).read_text(encoding="utf-8")
        lines = content.splitlines()
        text = statements.Text(content, lambda line: statements.Origin(path, line))
        for statement in text.statements:
            if isinstance(statement, statements.Include):
                copy = self.add(files.find(statement.filename, path))
                lines[statement.origin.line - 1] = f"include '{copy}'"
        self.texts[name] = "\n".join(lines) + "\n"
        return name

    def add_binding(self, binding: str) -> str:
        # A file for each: within one file, nothing may be bound twice.
        name = self._new("binding")
        self.texts[name] = f"{binding}\n"
        return name

    def _new(self, stem: str) -> str:
        name = f"{self._first:02d}-{stem}.gin"
        self._first += 1
        return name


def _includes(names: Sequence[str]) -> str:
    return "".join(f"include '{FOLDER}/{name}'\n" for name in names)


def _write_all(run_dir: run_directory.RunDirectory, copies: _Copies, top: str) -> None:
    folder = run_dir.path / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in copies.texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        temporary = run_dir.config.with_suffix(".gin.tmp")
        temporary.write_text(top, encoding="utf-8")
        temporary.replace(run_dir.config)
    except OSError as error:
        raise errors.ConfigError(f"{run_dir} cannot be written to: {error}") from error
