"""A parser of command lines that knows the nearest match of what was mistyped."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from actor_learner.configuring import suggestions


class Parser(argparse.ArgumentParser):
    """Refuses unknown flags and commands with the nearest one, and takes no abbreviated flags.

    An abbreviation that works today means another flag, or none, once there are more of them.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._flags: list[str] = []
        self._commands: argparse._SubParsersAction | None = None
        super().__init__(*args, allow_abbrev=False, **settings)

    def add_argument(self, *args: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*args, **settings)
        self._flags += action.option_strings
        return action

    def add_subparsers(self, **settings: Any) -> argparse._SubParsersAction:
        self._commands = super().add_subparsers(**settings)
        return self._commands

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Like `argparse`'s, but knows all arguments, or exits with what is unknown and nearest."""
        first = args[0] if args else "-"
        if self._commands is not None and not first.startswith("-"):
            names = list(self._commands.choices)
            if first not in names:
                hint = suggestions.did_you_mean(first, names) or f": there are {', '.join(names)}"
                self.error(f"there is no command '{first}'{hint}")
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = next((word for word in unknown if word.startswith("-")), unknown[0])
            hint = suggestions.did_you_mean(flag.partition("=")[0], self._flags)
            self.error(f"unrecognized argument {flag}{hint}")
        return found, unknown
