"""`actor-learner params`: look at, tag, copy and clean up stored parameters. No TensorFlow."""

from __future__ import annotations

import argparse
import glob
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

from actor_learner.support import errors, formatting

OK = 0


def add_parser(commands: Any) -> None:
    """Adds `params` with its own commands to those of the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    params = commands.add_parser("params", help="list, tag, copy or remove stored parameters")
    actions = params.add_subparsers(required=True, metavar="action")

    shown = actions.add_parser("list", help="show the versions, the last pushed first")
    _add_place(shown)
    shown.add_argument(
        "--where",
        metavar="CONDITION",
        help="only versions that fulfil it: \"win_rate > 0.6 and 'best' in tags\"",
    )
    shown.set_defaults(command=_list)

    tag = actions.add_parser("tag", help="put a tag on a version, off any other")
    _add_place(tag)
    tag.add_argument("version", type=int, help="the version, a train step")
    tag.add_argument("tag", help="any word; gc spares versions that have one")
    tag.set_defaults(command=_tag)

    untag = actions.add_parser("untag", help="take a tag away")
    _add_place(untag)
    untag.add_argument("tag")
    untag.set_defaults(command=_untag)

    get = actions.add_parser("get", help="copy a version to a file of its own")
    _add_place(get)
    get.add_argument("identifier", nargs="?", default="latest", help="version, tag or 'latest'")
    get.add_argument("--out", required=True, metavar="FILE.npz", help="where to; must be new")
    get.set_defaults(command=_get)

    gc = actions.add_parser("gc", help="remove old versions without tags")
    _add_place(gc)
    gc.add_argument(
        "--keep",
        type=int,
        required=True,
        help="how many of those without a tag stay, the last pushed",
    )
    gc.set_defaults(command=_gc)


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="RUN_OR_DIR", help="run directory, or that of a store")
    parser.add_argument("--name", help="whose parameters (default: the only ones there)")


def _list(arguments: argparse.Namespace) -> int:
    shown = 0
    for place in _places(arguments.place):
        held = _open(place)
        for name in held.names() if arguments.name is None else (arguments.name,):
            if shown:
                print()
            shown += 1
            _show(held, name, arguments.where)
    return OK


def _show(held: Any, name: str, where: str | None) -> None:
    versions = held.list(name, where)
    tagged = sum(bool(stored.tags) for stored in versions)
    number = len(versions) if where is None else f"{len(versions)} of {len(held.list(name))}"
    print(f"{name}: {number}, {tagged} of them tagged, in {held}")
    print("\n".join(_table(versions, now=time.time())))


def _places(place: str) -> list[str]:
    """The directories that are meant: one, or those of a pattern that the shell has left to us."""
    return [place] if os.path.exists(place) else sorted(glob.glob(place)) or [place]


def _tag(arguments: argparse.Namespace) -> int:
    held = _open(arguments.place)
    name = _name(held, arguments.name)
    held.tag(name, arguments.version, arguments.tag)
    print(f"{name}: version {arguments.version} is {arguments.tag!r} now")
    return OK


def _untag(arguments: argparse.Namespace) -> int:
    held = _open(arguments.place)
    name = _name(held, arguments.name)
    held.untag(name, arguments.tag)
    print(f"{name}: no version is {arguments.tag!r} any more")
    return OK


def _get(arguments: argparse.Namespace) -> int:
    from actor_learner.parameters import archive

    held = _open(arguments.place)
    name = _name(held, arguments.name)
    out = pathlib.Path(arguments.out)
    if out.suffix != ".npz":
        raise errors.ConfigError(f"--out={out}: the file's name must end in .npz")
    parameters = held.get(name, arguments.identifier)
    archive.save(
        out,
        parameters.values,
        name=name,
        version=parameters.version,
        metadata=parameters.metadata,
        created=parameters.created,
    )
    print(
        f"{out}: version {parameters.version} of {name}, {len(parameters.values)} arrays, "
        f"{_size(out.stat().st_size)}"
    )
    return OK


def _gc(arguments: argparse.Namespace) -> int:
    held = _open(arguments.place)
    name = _name(held, arguments.name)
    if arguments.keep < 1:
        raise errors.ConfigError(f"--keep={arguments.keep}: at least 1, the latest, always stays")
    removed = held.gc(name, arguments.keep)
    listed = f": {', '.join(map(str, removed))}" if removed else ""
    print(f"{name}: {len(removed)} removed{listed}; {len(held.list(name))} left")
    return OK


def _open(place: str):
    from actor_learner.parameters import store

    places = _places(place)
    if len(places) > 1:
        raise errors.ConfigError(
            f"{place} means {len(places)} directories, and this is for one: {', '.join(places)}"
        )
    (place,) = places
    if not os.path.isdir(place):
        raise errors.ConfigError(f"{place} does not exist: give a run directory, or a store's")
    held = store.ParameterStore(store.locate(place))
    if not held.names():
        raise errors.ConfigError(
            f"there are no parameters in {held}: separate jobs store versions of their policy "
            "(`actor-learner up`), and a run in one process those of its league; the best policy "
            "of any run is in best/ of its directory"
        )
    return held


def _name(held, given: str | None) -> str:
    """The name that is meant; only one that is alone need not be given."""
    if given is not None:
        return given
    names = held.names()
    if len(names) > 1:
        raise errors.ConfigError(
            f"{held} holds several parameters: say which by --name={'|'.join(names)}"
        )
    return names[0]


def _table(versions: Sequence[Any], now: float) -> list[str]:
    """Aligned columns, one for each key of any metadata."""
    keys = list(dict.fromkeys(key for stored in versions for key in stored.metadata))
    damaged = any(stored.damage is not None for stored in versions)
    rows = [["version", "tags", "age", "size", *keys, *(["damage"] if damaged else [])]]
    for stored in versions:
        age = "?" if stored.created is None else formatting.duration(now - stored.created)
        cells = [str(stored.version), ",".join(stored.tags) or "-", age, _size(stored.size)]
        cells += [_cell(stored.metadata.get(key)) for key in keys]
        if damaged:
            cells.append(stored.damage or "-")
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return formatting.number(value)
    return str(value)


def _size(num_bytes: int) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes} B"
