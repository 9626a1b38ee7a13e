"""The flags that every job takes, and the `Job` they describe."""

from __future__ import annotations

import argparse
import os
import secrets
from typing import Any

from actor_learner import config, run_directory
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import host_address, names, rendezvous
from actor_learner.naming import connect
from actor_learner.support import errors

RUN_VARIABLE = "ACTOR_LEARNER_RUN"
_REGISTRY_SECONDS = 180.0  # A job that is started with its registry may be up before it is.


_GONE = {
    "--num_actors": "actors join and leave a run as they like, and the learner counts them",
    "--replay": "the replay server is found by the registry, and gives its address by --host",
}


class _Gone(argparse.Action):
    """A flag of earlier versions, refused with the reason."""

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
        parser.error(f"{option_string} is not needed any more: {self._why}. Leave it out")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a job to a parser."""
    parser.add_argument(
        "--gin_file", action="append", default=[], help="configuration; may be repeated"
    )
    parser.add_argument(
        "--gin_param",
        "--gin_bindings",
        action="append",
        default=[],
        dest="gin_param",
        metavar="'NAME.PARAMETER = VALUE'",
        help="one binding, stronger than the files; may be repeated",
    )
    parser.add_argument(
        "--run",
        help="the run: its directory, or any word that its jobs agree on, for a job that leaves no "
        f"files behind (default: ${RUN_VARIABLE})",
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
    parser.add_argument(
        "--hold", action="store_true", help="stay ready until the command 'start' comes"
    )


def make_job(
    kind: str, arguments: argparse.Namespace, source: config.ConfigSource | None
) -> job_lib.Job:
    """Connects to the registry, for which it waits some minutes, and says who this process is.

    Raises:
      errors.ConfigError: If a flag is missing or wrong.
      name_errors.RegistryUnavailableError: If the registry has not answered by then.
    """
    run = arguments.run or os.environ.get(RUN_VARIABLE)
    if not run:
        raise errors.ConfigError(
            f"which run? Pass --run=DIRECTORY or --run=NAME, or set {RUN_VARIABLE}"
        )
    run_dir = run_directory_of(run)
    default = None if run_dir is None else str(rendezvous.registry_in(run_dir))
    url = connect.registry_url(arguments.registry, default)
    if url.startswith("memory://"):
        raise errors.ConfigError(
            f"--registry={url} is within one process, so no other job would find this one: use a "
            "directory or redis://HOST:PORT"
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
    job.host = arguments.host or host_address.own_host(job)
    return job


def config_source(
    arguments: argparse.Namespace, run_dir: run_directory.RunDirectory | None
) -> config.ConfigSource | None:
    """The configuration that the flags give, else that of the run directory; None without any."""
    if arguments.gin_file:
        return config.ConfigSource(tuple(arguments.gin_file), tuple(arguments.gin_param))
    if run_dir is not None and run_dir.config.exists():
        return config.ConfigSource((str(run_dir.config),), tuple(arguments.gin_param))
    return None


def run_directory_of(run: str | None) -> run_directory.RunDirectory | None:
    """The directory that `--run` names; None if it is just a word."""
    if not run or not (os.sep in run or os.path.isdir(run)):
        return None
    return run_directory.RunDirectory(os.path.abspath(run))


def _seed(given: int | None, run_dir: run_directory.RunDirectory | None) -> int:
    if given is not None:
        if not 0 <= given < 2**32:
            raise errors.ConfigError(f"--seed must lie in 0 to 2**32 - 1, got {given}")
        return given
    if run_dir is not None and run_dir.description.exists():
        return int(run_dir.read_description()["seed"])
    return secrets.randbelow(2**31)
