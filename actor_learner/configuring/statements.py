"""Reads gin text into statements that know the line they stand on, without importing anything."""

from __future__ import annotations

import dataclasses
import io
import tokenize
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Union

from gin import config_parser

from actor_learner.configuring import files

MACRO = "gin.macro"
_UNFINISHED = "this is never closed"


class Origin(NamedTuple):
    """Where something was written: a line of a file, or an argument of the command line.

    Origins sort in the order in which problems are reported: as arguments that name files, in
    files, in bindings.
    """

    file: str  # The absolute path; empty for arguments that name files, "~" for bindings.
    line: int  # From 1; for an argument its position among those of its kind.
    text: str = ""  # The argument.

    @classmethod
    def of_gin_file(cls, position: int, gin_file: str) -> Origin:
        return cls("", position, gin_file)

    @classmethod
    def of_binding(cls, position: int, binding: str) -> Origin:
        return cls("~", position, binding)

    @property
    def in_file(self) -> bool:
        return self.file not in ("", "~")

    def __str__(self) -> str:
        if self.in_file:
            return f"{files.shown(self.file)}:{self.line}"
        if not self.file:
            return f"--gin_file={self.text}"
        text = " ".join(self.text.split())
        quote = '"' if "'" in text and '"' not in text else "'"
        return f"--gin_param {quote}{text}{quote}"


class Problem(NamedTuple):
    """One thing that is wrong, and where."""

    origin: Origin
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.message}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scope/selector`, or `@scope/selector()` when `evaluate`."""

    scope: str
    selector: str
    evaluate: bool

    def __repr__(self) -> str:
        scope = self.scope + "/" if self.scope else ""
        return f"@{scope}{self.selector}{'()' if self.evaluate else ''}"


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%name`."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/selector.parameter = value`; a macro `NAME = value` is `NAME/gin.macro.value`."""

    origin: Origin
    scope: str
    selector: str
    parameter: str
    value: Any
    in_block: bool = False

    @property
    def is_macro(self) -> bool:
        return self.selector == MACRO

    @property
    def key(self) -> str:
        if self.is_macro:
            return self.scope
        return f"{self.scope + '/' if self.scope else ''}{self.selector}.{self.parameter}"


@dataclasses.dataclass(frozen=True)
class Block:
    """`scope/selector:`, the head of a block; its bindings follow as bindings of their own."""

    origin: Origin
    selector: str


@dataclasses.dataclass(frozen=True)
class Import:
    """`import module` or `from package import module`."""

    origin: Origin
    module: str
    is_from: bool


@dataclasses.dataclass(frozen=True)
class Include:
    """`include 'filename'`."""

    origin: Origin
    filename: str


Statement = Union[Binding, Block, Import, Include]


class Text:
    """The statements of one piece of gin text, up to its first syntax error.

    Attributes:
      statements: In the order written.
      problem: The syntax error that ended the reading, or None.
    """

    def __init__(self, text: str, origin: Callable[[int], Origin]):
        """`origin` tells the origin of a line, counted from 1."""
        self._lines = text.splitlines(keepends=True)
        self._origin = origin
        self.statements: list[Statement] = []
        self.problem: Problem | None = None
        self._starts: list[tuple[int, Statement]] = []
        self._read(text)

    @property
    def dynamic_registration(self) -> bool:
        """Whether names in this text are resolved through its imports instead of a registry."""
        return any(
            isinstance(statement, Import) and statement.module == "__gin__.dynamic_registration"
            for statement in self.statements
        )

    def excerpt(self, statement: Statement) -> str:
        """The text with only `statement` and the imports above it left, on their own lines.

        The imports stay because with dynamic registration they give meaning to the statement.
        """
        ends = [line for line, _ in self._starts[1:]] + [len(self._lines) + 1]
        kept = set()
        for (start, other), end in zip(self._starts, ends):
            if isinstance(other, Import) or other is statement:
                kept.update(range(start, end))
            if other is statement:
                break
        return "".join(
            line if number in kept else "\n" for number, line in enumerate(self._lines, start=1)
        )

    def _read(self, text: str) -> None:
        try:
            parser = config_parser.ConfigParser(text, _Values())
            for parsed in parser:
                statement = self._convert(parsed)
                self.statements.append(statement)
                if not getattr(statement, "in_block", False):
                    self._starts.append((parsed.location.line_num, statement))
        except SyntaxError as error:
            opening = _opening_of_unfinished(text)
            if opening and opening <= (error.lineno or 1):
                self._fail(opening, _UNFINISHED)
            else:
                self._fail(error.lineno or 1, _reason(error))
        except tokenize.TokenError as error:
            self._fail(_opening_of_unfinished(text) or error.args[1][0], _UNFINISHED)

    def _fail(self, line: int, reason: str) -> None:
        line = min(max(line, 1), max(len(self._lines), 1))
        shown = self._lines[line - 1].strip() if self._lines else ""
        self.problem = Problem(self._origin(line), f"syntax error in `{shown}`: {reason}")

    def _convert(self, parsed: Any) -> Statement:
        origin = self._origin(parsed.location.line_num)
        if isinstance(parsed, config_parser.BindingStatement):
            scope, selector, parameter = parsed.scope, parsed.selector, parsed.arg_name
            if not parameter:
                scope, selector, parameter = f"{scope}/{selector}".lstrip("/"), MACRO, "value"
            elif (selector, parameter) in (("macro", "value"), (MACRO, "value")):
                selector = MACRO
            # gin gives a column to the bindings of a block only.
            in_block = parsed.location.char_num is not None
            return Binding(origin, scope, selector, parameter, parsed.value, in_block)
        if isinstance(parsed, config_parser.BlockDeclaration):
            return Block(origin, parsed.selector)
        if isinstance(parsed, config_parser.ImportStatement):
            return Import(origin, parsed.module, parsed.is_from)
        return Include(origin, parsed.filename)


def values_within(value: Any) -> Iterator[Any]:
    """`value` itself and everything inside it, however deeply nested."""
    yield value
    if isinstance(value, dict):
        for pair in value.items():
            for item in pair:
                yield from values_within(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from values_within(item)


class _Values(config_parser.ParserDelegate):
    """Makes gin's parser build our values, which refer to nothing that must be imported."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        scope, _, selector = scoped_configurable_name.rpartition("/")
        return Reference(scope, selector, evaluate)

    def macro(self, macro_name: str) -> Macro:
        return Macro(macro_name)


def _reason(error: SyntaxError) -> str:
    *details, reason = error.msg.strip().splitlines()
    reason = reason.strip().rstrip(".")
    # gin has more than one line to say only about a word that is no literal.
    hint = ": text needs quotes, a configurable @, a macro %" if details else ""
    return reason + hint


def _opening_of_unfinished(text: str) -> int | None:
    """The line of the outermost bracket that is not closed at the end of `text`, if any."""
    open_lines: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP and token.string in "([{":
                open_lines.append(token.start[0])
            elif token.type == tokenize.OP and token.string in ")]}" and open_lines:
                open_lines.pop()
    except tokenize.TokenError:
        return open_lines[0] if open_lines else None
    return None
