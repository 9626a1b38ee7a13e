"""`actor-learner train --seeds=1,2,3`: the same training with several seeds, one by one."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from actor_learner import config, import_path, run_directory
from actor_learner.commands import run_paths
from actor_learner.support import errors, programs

OK, FAILED = 0, 1
_INTERRUPTED = (129, 130, 143)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run(arguments: argparse.Namespace) -> int:
    """Trains with each seed in a process of its own; returns the highest of their exit codes.

    The runs are `seed-N` in `--run_dir`, or in a new directory under `runs/`. One that is
    interrupted ends the series; one that fails does not.

    Raises:
      errors.ConfigError: If the flags do not go together or the configuration is wrong.
    """
    seeds = _parsed(arguments.seeds)
    for flag in ("seed", "resume", "dry_run"):
        if getattr(arguments, flag) not in (None, False):
            raise errors.ConfigError(f"--seeds and --{flag} exclude each other")
    if not arguments.gin_file:
        raise errors.ConfigError("--seeds needs --gin_file=FILE")
    source = config.ConfigSource(tuple(arguments.gin_file), tuple(arguments.gin_param))
    import_path.extend(import_path.of(source))
    config.check(source)  # Once, rather than once per seed.
    directory = run_directory.RunDirectory.create(
        arguments.run_dir, pathlib.Path(source.gin_files[-1]).stem
    ).path
    flags = [f"--gin_file={name}" for name in source.gin_files]
    flags += [f"--gin_param={binding}" for binding in source.bindings]
    codes = []
    with _forwarding() as children:
        for seed in seeds:
            place = directory / f"{run_paths.SEED_PREFIX}{seed}"
            command = [sys.executable, "-m", "actor_learner.cli", "train", *flags]
            codes.append(children.run([*command, f"--run_dir={place}", f"--seed={seed}"]))
            if codes[-1] in _INTERRUPTED:
                break
    plot = shlex.join([f"{programs.directory()}actor-learner", "plot", str(directory)])
    print(f"{len([c for c in codes if c == OK])} of {len(seeds)} seeds are trained. Plot: {plot}")
    return max(codes)


class _Children:
    """Runs one child after the other, and ends the one that runs when this process is told to."""

    def __init__(self) -> None:
        self._child: subprocess.Popen | None = None
        self._told = False

    def run(self, command: Sequence[str]) -> int:
        """Runs a command to its end; returns its exit code, as a shell would give it."""
        if self._told:
            return 128 + signal.SIGTERM
        self._child = subprocess.Popen(command)
        if self._told:  # While it was started.
            self._child.send_signal(signal.SIGTERM)
        try:
            return self._wait(self._child)
        finally:
            self._child = None

    def end(self, *_: object) -> None:
        """Has the child save and end: a handler of signals."""
        if self._child is None:
            self._told = True
        else:
            self._child.send_signal(signal.SIGTERM)

    def _wait(self, child: subprocess.Popen) -> int:
        """Ctrl-C reaches the child by itself, which saves and ends; until then we wait for it."""
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _forwarding() -> Iterator[_Children]:
    """Hands signals that end this process to its child; those that are ignored stay so (nohup)."""
    children = _Children()
    previous = {number: signal.getsignal(number) for number in _FORWARDED}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, children.end)
    try:
        yield children
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _parsed(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise errors.ConfigError(f"--seeds={text}: write numbers, as in --seeds=1,2,3") from error
    if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise errors.ConfigError(f"--seeds={text}: different numbers from 0 to 2**32 - 1")
    return seeds
