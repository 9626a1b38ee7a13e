"""A configuration as gin would execute it: all files, with includes expanded, then all bindings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from actor_learner.configuring import files, statements
from actor_learner.support import errors


@dataclasses.dataclass
class Program:
    """What a list of gin files and bindings amounts to.

    Attributes:
      steps: Every statement but the includes, in the order of execution, with the text it is in.
      problems: Syntax errors and files that could not be found or read.
    """

    steps: list[tuple[statements.Text, statements.Statement]] = dataclasses.field(
        default_factory=list
    )
    problems: list[statements.Problem] = dataclasses.field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether everything could be read."""
        return not self.problems


def read(gin_files: Sequence[str], bindings: Sequence[str]) -> Program:
    """Reads all of `gin_files`, following includes, and then `bindings`."""
    program = Program()
    for position, gin_file in enumerate(gin_files, start=1):
        try:
            path = files.find(gin_file)
        except errors.ConfigError as error:
            origin = statements.Origin.of_gin_file(position, gin_file)
            program.problems.append(statements.Problem(origin, str(error)))
        else:
            _add_file(program, path, including=())
    for position, binding in enumerate(bindings, start=1):
        origin = statements.Origin.of_binding(position, binding)
        _add_text(program, statements.Text(binding, lambda line, o=origin: o), including=())
    return program


def _add_file(program: Program, path: str, including: tuple[str, ...]) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        program.problems.append(
            statements.Problem(statements.Origin(path, 1), f"cannot be read: {error}")
        )
        return
    text = statements.Text(content, lambda line: statements.Origin(path, line))
    _add_text(program, text, (*including, path))


def _add_text(program: Program, text: statements.Text, including: tuple[str, ...]) -> None:
    if text.problem:
        program.problems.append(text.problem)
    for statement in text.statements:
        if not isinstance(statement, statements.Include):
            program.steps.append((text, statement))
            continue
        try:
            path = files.find(statement.filename, including[-1] if including else None)
        except errors.ConfigError as error:
            program.problems.append(statements.Problem(statement.origin, str(error)))
            continue
        if path in including:
            chain = " includes ".join(files.shown(p) for p in (*including, path))
            program.problems.append(
                statements.Problem(statement.origin, f"endless include: {chain}")
            )
        else:
            _add_file(program, path, including)
