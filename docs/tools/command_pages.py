"""The reference of the commands, read from the parsers that serve them."""

from __future__ import annotations

import argparse
import io

from actor_learner import cli
from actor_learner.jobs import flags

_INTRODUCTION = """\
# Commands

`actor-learner COMMAND …`, or `python -m actor_learner.cli COMMAND …`. Every command has `--help`.
Exit codes: 0 done, 1 failed, 2 the configuration or the arguments are wrong, 130 and 143 ended by
Ctrl-C or SIGTERM with everything saved; those of jobs are in [Separate jobs](../jobs.md#by-hand).
"""


def page() -> str:
    """The page, as Markdown."""
    parser = cli._parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    helps = {choice.dest: choice.help for choice in commands._choices_actions}
    parts = [_INTRODUCTION]
    for name, command in commands.choices.items():
        if name in cli.JOBS:
            parts.append(f"## {name}\n\n{helps[name]}. [Its flags](../jobs.md#by-hand).\n")
            continue
        shown = io.StringIO()
        command.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=84)
        command.print_help(shown)
        parts.append(f"## {name}\n\n{helps.get(name) or ''}\n\n```text\n{shown.getvalue()}```\n")
    parts.append(
        f"## Environment variables\n\n| variable | |\n|---|---|\n"
        f"| `{flags.RUN_VARIABLE}` | the run, where no `--run` is given |\n"
        "| `ACTOR_LEARNER_REGISTRY` | the registry, where no `--registry` is given |\n"
        "| `ACTOR_LEARNER_KEYS` | the keys of the run, as a path or as their text |\n"
    )
    return "\n".join(parts)
