"""`actor-learner tournament`: plays policies against one another and prints who beats whom."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

from actor_learner.reporting import process_output
from actor_learner.support import errors

OK = 0


def add_parser(commands: Any) -> None:
    """Adds `tournament` to the commands of the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser("tournament", help="play policies of runs against one another")
    parser.add_argument(
        "players",
        nargs="+",
        metavar="RUN[@TAG]",
        help="runs of one game; a tag or version of their parameters; 'random'; module:function",
    )
    parser.add_argument("--games", type=int, default=200, help="of each pair (default: 200)")
    parser.add_argument("--lanes", type=int, default=64, help="at the same time (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="for other games (default: 0)")
    parser.add_argument(
        "--sample", action="store_true", help="policies draw their moves, as in training"
    )
    parser.add_argument("--picture", metavar="OUT.png", help="draw who beats whom")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays and prints; returns the exit code."""
    if len(arguments.players) < 2:
        raise errors.ConfigError("a tournament needs two players; 'random' may be one of them")
    for name in ("games", "lanes"):
        if getattr(arguments, name) < 1:
            raise errors.ConfigError(f"--{name}={getattr(arguments, name)}: at least 1")
    with (
        # Not in a run directory, which may be somebody else's.
        tempfile.TemporaryDirectory() as directory,
        process_output.capture_native_output(
            os.path.join(directory, "log"), capture_stdout=True
        ) as output,
        output.quiet_imports(),
    ):
        from actor_learner.league import elo, picture
        from actor_learner.runs.league import tournament

        entries = tournament.Entries(
            arguments.lanes, greedy=not arguments.sample, seed=arguments.seed
        )
        for entry in arguments.players:
            entries.add(entry)
        if entries.game is None:
            raise errors.ConfigError("none of the players is a run, which says what is played")
        table = tournament.play(
            entries.game,
            entries.players,
            games=arguments.games,
            lanes=arguments.lanes,
            seed=arguments.seed,
        )
        names = list(entries.players)
        ratings = elo.ratings(table, names[0])
        if arguments.picture:
            picture.draw(arguments.picture, "Tournament", table, {n: ratings[n] for n in names}, {})
    print("\n".join(tournament.lines(table, ratings, names)))
    print(f"Elo of {names[0]} is 1000; 'vs' shows wins/draws/losses")
    return OK
