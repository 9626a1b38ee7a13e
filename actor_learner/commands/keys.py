"""`actor-learner keys FILE`: makes the keys of a run whose jobs are started by hand."""

from __future__ import annotations

import argparse
import os
from typing import Any

from actor_learner.messaging import keys
from actor_learner.support import errors


def add_parser(commands: Any) -> None:
    """Adds the command to the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser(
        "keys", help="make the keys that jobs on several machines need to talk to each other"
    )
    parser.add_argument("file", metavar="FILE", help="is made; must not exist")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    if os.path.exists(arguments.file):
        raise errors.ConfigError(
            f"{arguments.file} exists: jobs may be using these keys. Give another name, or remove "
            "it first"
        )
    keys.RunKeys.generate().save(arguments.file)
    print(
        f"{arguments.file}: copy it to every machine of the run, for its owner only (chmod 600), "
        f"and set {keys.VARIABLE} to its path for every job and for `actor-learner control`"
    )
    return 0
