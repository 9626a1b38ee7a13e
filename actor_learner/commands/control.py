"""`actor-learner control`: show, ask, pause, resume, start or end jobs of a run under way."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from actor_learner import jobs_settings, run_directory
from actor_learner.commands import worker_table
from actor_learner.jobs import controller, flags, states
from actor_learner.jobs import status as status_lib
from actor_learner.jobs.presence import names, rendezvous
from actor_learner.naming import connect
from actor_learner.support import errors

OK, FAILED = 0, 1
STATUS = "status"
COMMANDS = (STATUS, states.PING, states.PAUSE, states.RESUME, states.START, states.EXIT)


def add_parser(commands: Any) -> None:
    """Adds the command to the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser("control", help="show, pause, resume or end jobs of a run")
    parser.add_argument("run", metavar="RUN", help="its directory or name")
    parser.add_argument("action", choices=COMMANDS)
    parser.add_argument(
        "--job", help="actor-0, or actor for all of the kind (default: all jobs that it suits)"
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        help=f"of the run (default: ${connect.ENVIRONMENT_VARIABLE}, or in the run directory)",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds to wait for the answers (default: 60)"
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    if arguments.action == states.EXIT and arguments.job is None:
        raise errors.ConfigError(
            "which job is to end? Pass --job=actor-0, or --job=learner, with which a run that "
            "`actor-learner up` has started ends as a whole"
        )
    kind, index = _job(arguments.job)
    run_dir = flags.run_directory_of(arguments.run)
    url = registry_of(arguments.run, run_dir, arguments.registry)
    run, keys = names.run_name(arguments.run), rendezvous.keys_of(run_dir)
    with (
        connect.connect(url, who="control") as found,
        controller.Controller(found, run, keys=keys, who="control") as watching,
    ):
        if arguments.action in (STATUS, states.PING):
            everyone = watching.workers()
            meant = [s for s in everyone if kind in (None, s.kind) and index in (None, s.index)]
            if not meant:
                there = ", ".join(status.name for status in everyone) or "none"
                raise errors.JobError(
                    f"run {run} has no worker {arguments.job or 'at all'}; it has {there}. Is it "
                    "started, with this run and registry?"
                )
            if arguments.action == states.PING:
                return _ping(watching, meant, arguments.timeout)
            newest = worker_table.newest_version(everyone)
            print("\n".join(worker_table.table(meant, newest)))
            return OK
        everyone = watching.workers(kind)
        answers = watching.send(
            arguments.action,
            kind=kind,
            index=index,
            only=None if arguments.job else states.suitable(arguments.action),
            timeout=arguments.timeout,
        )
    for job, reply in sorted(answers.items()):
        done = "is ending" if arguments.action == states.EXIT else f"is {reply.state}"
        print(f"{job} {done}")
    for status in everyone:
        if status.name not in answers and index in (None, status.index):
            print(f"not reached: {status.describe()}")
    return OK


def registry_of(run: str, run_dir: run_directory.RunDirectory | None, given: str | None) -> str:
    """The URL of the registry of a run, which `run` names: its directory, or only a word.

    Raises:
      errors.ConfigError: If there is no such directory, and nothing says where the registry is.
    """
    if run_dir is not None:
        if not os.path.isdir(run_dir.path):
            raise errors.ConfigError(f"{run_dir} does not exist: give the directory of a run")
        return connect.registry_url(given, str(rendezvous.registry_in(run_dir)))
    if not given and not os.environ.get(connect.ENVIRONMENT_VARIABLE):
        raise errors.ConfigError(
            f"there is no directory {run}: give that of a run, or, for a run whose directory is on "
            f"another machine, its registry (--registry or {connect.ENVIRONMENT_VARIABLE})"
        )
    return connect.registry_url(given)


def _ping(
    watching: controller.Controller, workers: Sequence[status_lib.Status], timeout: float
) -> int:
    """Says who answers and who does not; those that have completed need not."""
    expected = [status for status in workers if status.state != states.COMPLETED]
    alive = [status.name for status in expected if status.state in states.LIVE]
    replies = watching.ask(states.PING, alive, timeout=timeout)
    for status in workers:
        reply = replies.get(status.name)
        if reply is not None:
            print(f"{status.name} answers: {reply.state}, in a poll for {reply.poll_seconds:.1f} s")
        elif status in expected:
            print(f"no answer of {status.describe()}")
        else:
            print(status.describe())
    return OK if len(replies) == len(expected) else FAILED


def _job(name: str | None) -> tuple[str | None, int | None]:
    """`actor-0` and `actor` as kind and index."""
    if name is None:
        return None, None
    kind, dash, index = name.rpartition("-")
    if not dash or (jobs_settings.is_further_learner(name) and not index.isdigit()):
        return jobs_settings.check_kind(name), None
    if not index.isdigit():
        raise errors.ConfigError(f"--job={name} is not a job: write it as actor-0, or as actor")
    return jobs_settings.check_kind(kind), int(index)
