"""`actor-learner scale RUN --actors=8`: changes how many actors a run under way has."""

from __future__ import annotations

import argparse
from typing import Any

from actor_learner.commands import control
from actor_learner.jobs import flags
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import names, rendezvous
from actor_learner.launch import scaling
from actor_learner.naming import connect
from actor_learner.support import errors


def add_parser(commands: Any) -> None:
    """Adds the command to the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser("scale", help="change how many actors a run of `up` has")
    parser.add_argument("run", metavar="RUN", help="its directory or name")
    parser.add_argument("--actors", type=int, required=True, help="how many it is to have")
    parser.add_argument(
        "--registry",
        metavar="URL",
        help=f"of the run (default: ${connect.ENVIRONMENT_VARIABLE}, or in the run directory)",
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds to wait for the answer (default: 30)"
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.actors <= scaling.MAX_ACTORS:
        raise errors.ConfigError(
            f"--actors must lie in 1 to {scaling.MAX_ACTORS:,}, got {arguments.actors}"
        )
    run_dir = flags.run_directory_of(arguments.run)
    url = control.registry_of(arguments.run, run_dir, arguments.registry)
    with connect.connect(url, who="scale") as found:
        asking = job_lib.Job(
            "scale", 0, names.run_name(arguments.run), found, keys=rendezvous.keys_of(run_dir)
        )
        if asking.wire_address_of(names.LAUNCHER) is None:
            raise errors.JobError(
                f"no launcher is at work on run {asking.run}: only a run that `actor-learner up` "
                "has started, and that is under way, can be scaled. Actors that are started by "
                "hand join and leave by themselves"
            )
        with asking.connect(names.LAUNCHER, timeout=arguments.timeout) as client:
            answer = client.request(
                scaling.SCALE, {"actors": arguments.actors}, timeout_seconds=arguments.timeout
            )
    for what, verb in (("started", "is started"), ("ending", "is ending")):
        for name in answer.body.get(what, []):
            print(f"{name} {verb}")
    plural = "" if arguments.actors == 1 else "s"
    print(f"run {asking.run} is to have {arguments.actors} actor{plural}")
    return 0
