"""Defines the flags that every job takes, and makes the `Job` they describe."""

from __future__ import annotations

import argparse
import os
import secrets
from typing import Any

from actor_learner import config, run_directory
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import names, rendezvous
from actor_learner.naming import connect
from actor_learner.support import errors

RUN_VARIABLE = "ACTOR_LEARNER_RUN"
_REGISTRY_SECONDS = 180.0  # A job may be up before the registry that is started with it.


_GONE = {
    "--num_actors": "actors may join and leave a run at any time, and the learner counts them",
    "--replay": "jobs find the replay server through the registry; its --host sets the address",
}


class _Gone(argparse.Action):
    """Refuses a flag of earlier versions, with the reason."""

    def __init__(self, *arguments: Any, why: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._why = why

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} is no longer needed: {self._why}. Leave it out")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a job to a parser."""
    config.add_flags(parser)
    parser.add_argument(
        "--run",
        help="the run: its directory, or, for a job that writes no files, any name that its jobs "
        f"agree on (default: ${RUN_VARIABLE})",
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="where the jobs of the run find one another: redis://HOST:PORT, or a directory "
        f"(default: ${connect.ENVIRONMENT_VARIABLE}, or in the run directory)",
    )
    parser.add_argument("--index", type=int, default=0, help="which one of its kind, from 0")
    for flag, why in _GONE.items():
        parser.add_argument(
            flag, action=_Gone, help=argparse.SUPPRESS, dest=argparse.SUPPRESS, why=why
        )
    parser.add_argument(
        "--seed", type=int, help="seed of everything random (default: the run's, or drawn)"
    )
    parser.add_argument(
        "--host",
        help="name or address by which the other jobs reach this machine (default: localhost, or "
        "the address of the network interface if the registry may be shared with other machines)",
    )
    parser.add_argument("--hold", action="store_true", help="stay ready until the command 'start'")


def make_job(
    kind: str, arguments: argparse.Namespace, source: config.ConfigSource | None
) -> job_lib.Job:
    """Connects to the registry, waiting up to three minutes for it, and describes the job.

    Raises:
      errors.ConfigError: If a flag is missing or wrong.
      name_errors.RegistryUnavailableError: If the registry does not answer in time.
    """
    run = arguments.run or os.environ.get(RUN_VARIABLE)
    if not run:
        raise errors.ConfigError(
            f"--run is missing: pass --run=DIRECTORY or --run=NAME, or set {RUN_VARIABLE}"
        )
    run_dir = run_directory_of(run)
    default = None if run_dir is None else str(rendezvous.registry_in(run_dir))
    url = connect.registry_url(arguments.registry, default)
    if url.startswith("memory://"):
        raise errors.ConfigError(
            f"--registry={url} exists within one process, so that no other job would find this "
            "one: use a directory or redis://HOST:PORT"
        )
    job = job_lib.Job(
        kind,
        arguments.index,
        names.run_name(run),
        connect.connect(
            url, who=names.job(kind, arguments.index), patience_seconds=_REGISTRY_SECONDS
        ),
        run_dir=run_dir,
        seed=_seed(arguments.seed, run_dir),
        source=source,
        hold=arguments.hold,
        keys=rendezvous.keys_of(run_dir),
    )
    job.host = arguments.host or rendezvous.own_host(job)
    return job


def config_source(
    arguments: argparse.Namespace, run_dir: run_directory.RunDirectory | None
) -> config.ConfigSource | None:
    """Returns the configuration of the flags, else of the run directory; None without either."""
    if arguments.gin_file:
        return config.ConfigSource(tuple(arguments.gin_file), tuple(arguments.gin_param))
    if run_dir is not None and run_dir.config.exists():
        return config.ConfigSource((str(run_dir.config),), tuple(arguments.gin_param))
    return None


def run_directory_of(run: str | None) -> run_directory.RunDirectory | None:
    """Returns the directory that `--run` names; None if it is only a name."""
    if not run or not (os.sep in run or os.path.isdir(run)):
        return None
    return run_directory.RunDirectory(os.path.abspath(run))


def _seed(given: int | None, run_dir: run_directory.RunDirectory | None) -> int:
    if given is not None:
        if not 0 <= given < 2**32:
            raise errors.ConfigError(f"--seed={given} is out of range: it must be 0 to 2**32 - 1")
        return given
    if run_dir is not None and run_dir.description.exists():
        return int(run_dir.read_description()["seed"])
    return secrets.randbelow(2**31)
