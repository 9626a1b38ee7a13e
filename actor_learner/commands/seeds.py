"""`actor-learner train --seeds=1,2,3`: the same training with several seeds, one by one."""

from __future__ import annotations

import argparse
import pathlib
import shlex
import subprocess
import sys

from actor_learner import config, import_path, run_directory
from actor_learner.commands import run_paths
from actor_learner.support import errors, programs

OK, FAILED = 0, 1
_INTERRUPTED = (130, 143)


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
    for seed in seeds:
        place = directory / f"{run_paths.SEED_PREFIX}{seed}"
        command = [sys.executable, "-m", "actor_learner.cli", "train", *flags]
        child = subprocess.Popen([*command, f"--run_dir={place}", f"--seed={seed}"])
        codes.append(_wait(child))
        if codes[-1] in _INTERRUPTED:
            break
    plot = shlex.join([f"{programs.directory()}actor-learner", "plot", str(directory)])
    print(f"{len([c for c in codes if c == OK])} of {len(seeds)} seeds are trained. Plot: {plot}")
    return max(codes)


def _wait(child: subprocess.Popen) -> int:
    """Ctrl-C reaches the child by itself, which saves and ends; until then we wait for it."""
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else 128 - code


def _parsed(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise errors.ConfigError(f"--seeds={text}: write numbers, as in --seeds=1,2,3") from error
    if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise errors.ConfigError(f"--seeds={text}: different numbers from 0 to 2**32 - 1")
    return seeds
