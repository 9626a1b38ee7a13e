"""Which flags each command takes, asked of the parsers themselves, for tests of the docs."""

from __future__ import annotations

import argparse
import functools

from actor_learner import cli
from actor_learner.jobs import flags


@functools.cache
def _parsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (
        action
        for action in cli._parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(commands.choices)


@functools.cache
def _job_flags() -> frozenset[str]:
    parser = argparse.ArgumentParser()
    flags.add(parser)
    own = {
        "--port",
        "--num_evaluators",
        "--num_learners",
        "--policy",
        "--num_replays",
        "--warm_start",
    }  # Of single kinds of jobs.
    return frozenset(_options(parser) | own)


def _options(parser: argparse.ArgumentParser) -> set[str]:
    found = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                found |= _options(choice)
    return found


def everywhere() -> set[str]:
    """All flags of all commands."""
    return set(_job_flags()).union(*(_options(parser) for parser in _parsers().values()))


def problem(words: list[str]) -> str | None:
    """What is wrong with the words behind `actor-learner`; None if nothing is."""
    names = words[0].split("|")  # `replay|learner|actor` names several.
    for name in names:
        if name.startswith("-") or not name.isascii() or name.isupper():
            continue
        if name not in _parsers():
            return f"there is no command {name!r}, but {', '.join(sorted(_parsers()))}"
        known = _options(_parsers()[name])
        if name in cli.JOBS or name == "eval":
            known = known | _job_flags()
        given = [word.split("=")[0] for word in words[1:] if word.startswith("--")]
        unknown = [flag for flag in given if flag not in known]
        if unknown:
            return f"{name} does not take {', '.join(unknown)}"
    return None
