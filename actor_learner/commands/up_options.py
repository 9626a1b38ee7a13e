"""The flags of `actor-learner up`, and what is wrong with them before anything is read."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex

from actor_learner import config
from actor_learner.launch import job_spec, restarts
from actor_learner.naming import connect
from actor_learner.runs import warm_start
from actor_learner.support import errors, redaction

AUTO = "auto"

_FLAGS = {"gin_files": "gin_file", "bindings": "gin_param"}  # Options that have other names.
_KEPT_IN_RUN = ("gin_file", "gin_param", "run_dir", "resume")


@dataclasses.dataclass(frozen=True)
class UpOptions:
    """The flags of the command, as the user gave them."""

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...]
    actors: int = 1
    evaluators: int = 1
    learners: int = 1
    replays: int = 1
    policies: int = 0
    run_dir: str | None = None
    resume: str | None = None
    seed: int | None = None
    registry: str | None = None
    launcher: str = "local"
    address: str = AUTO
    detach: bool = False
    max_restarts: int = restarts.RestartPolicy().max_restarts
    host: str | None = None
    replay_host: str | None = None
    replay_port: int | None = None
    grace_seconds: float = job_spec.GRACE_SECONDS
    replay_grace_seconds: float = job_spec.REPLAY_GRACE_SECONDS
    tolerate: tuple[str, ...] = ()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags to the command."""
    config.add_flags(parser)
    warm_start.add_flag(parser)
    parser.add_argument("--actors", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--evaluators", type=int, default=1, help="how many (default: 1)")
    parser.add_argument(
        "--learners",
        type=int,
        default=1,
        help="how many share each batch (default: 1)",
    )
    parser.add_argument(
        "--replays",
        type=int,
        default=1,
        help="how many replay servers share the tables (default: 1)",
    )
    parser.add_argument(
        "--policies",
        type=int,
        default=0,
        help="how many jobs choose the actions of the actors (default: 0, each actor its own)",
    )
    parser.add_argument("--run_dir", help="where everything goes (default: a new one under runs/)")
    parser.add_argument("--resume", metavar="RUN", help="resume the run in this directory")
    parser.add_argument("--seed", type=int, help="seed of everything random (default: drawn)")
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="where the jobs find one another: redis://HOST:PORT, or a directory "
        f"(default: ${connect.ENVIRONMENT_VARIABLE}, or in the run directory)",
    )
    parser.add_argument(
        "--launcher", choices=("local", "ray"), default="local", help="where jobs are started"
    )
    parser.add_argument(
        "--address",
        default=AUTO,
        help="of the Ray cluster, for --launcher=ray and --attach (default: auto)",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="with --launcher=ray: leave the run to the cluster once it has begun",
    )
    parser.add_argument(
        "--attach",
        metavar="RUN",
        help="show a run that was begun with --launcher=ray, to its end; Ctrl-C leaves it running",
    )
    parser.add_argument(
        "--max_restarts",
        type=int,
        default=restarts.RestartPolicy().max_restarts,
        help="of each job within ten minutes, before the run is given up (default: %(default)s)",
    )
    parser.add_argument(
        "--tolerate",
        default="",
        metavar="KIND,...",
        help="kinds of jobs, such as actor,evaluator, without which the run goes on when one has "
        "failed for good; one actor must be left (default: any failure for good ends the run)",
    )
    parser.add_argument(
        "--host",
        help="how jobs on other machines reach this one; localhost if there are none (default: "
        "localhost, or the address of the network interface if the registry is outside the run "
        "directory). Under Ray the jobs are reached by the addresses of their nodes",
    )
    parser.add_argument(
        "--replay_host",
        metavar="HOST",
        help="how the other jobs reach the replay server (default: localhost, or the address of "
        "the network interface if the registry is outside the run directory; under Ray its node's)",
    )
    parser.add_argument(
        "--replay_port",
        type=int,
        metavar="PORT",
        help="of the replay server; of several the first, the others take the ports that follow "
        "(default: free ones)",
    )
    parser.add_argument(
        "--grace_seconds",
        type=float,
        default=job_spec.GRACE_SECONDS,
        metavar="SECONDS",
        help="for a job that is asked to end, saving included, before it is killed "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--replay_grace_seconds",
        type=float,
        default=job_spec.REPLAY_GRACE_SECONDS,
        metavar="SECONDS",
        help="the same for the replay server, which takes seconds per gigabyte to save "
        "(default: %(default)g)",
    )


def options_of(arguments: argparse.Namespace) -> UpOptions:
    """The options that a command line amounts to."""
    return UpOptions(
        gin_files=tuple(arguments.gin_file),
        bindings=tuple(arguments.gin_param),
        actors=arguments.actors,
        evaluators=arguments.evaluators,
        learners=arguments.learners,
        replays=arguments.replays,
        policies=arguments.policies,
        run_dir=arguments.run_dir,
        resume=arguments.resume,
        seed=arguments.seed,
        registry=arguments.registry,
        launcher=arguments.launcher,
        address=arguments.address,
        detach=arguments.detach,
        max_restarts=arguments.max_restarts,
        host=arguments.host,
        replay_host=arguments.replay_host,
        replay_port=arguments.replay_port,
        grace_seconds=arguments.grace_seconds,
        replay_grace_seconds=arguments.replay_grace_seconds,
        tolerate=tuple(filter(None, arguments.tolerate.split(","))),
    )


def given(options: UpOptions) -> dict[str, str]:
    """Returns the flags that are not at their defaults, as one writes them, by their names."""
    found = {}
    for field in dataclasses.fields(options):
        name, value = _FLAGS.get(field.name, field.name), getattr(options, field.name)
        if value in ((), field.default):
            continue
        if value is True:
            found[name] = f"--{name}"
        elif name in _FLAGS.values():
            found[name] = " ".join(f"--{name}={one}" for one in value)
        else:
            found[name] = f"--{name}={','.join(value) if isinstance(value, tuple) else value}"
    return found


def resume_command(options: UpOptions) -> str:
    """Returns the command that resumes the run as it was started, all but `--resume=RUN`.

    The configuration is in the run directory, and so is the seed with which the run was begun. A
    password of the registry is left out.
    """
    kept = _KEPT_IN_RUN if options.resume else (*_KEPT_IN_RUN, "seed")
    flags = [text for name, text in given(options).items() if name not in kept]
    return redaction.redacted(shlex.join(["up", *flags]))


def check_attach(options: UpOptions) -> None:
    """Raises a ConfigError for a flag beside `--attach` that is about starting a run.

    Only `--address` says something about a run that is under way; `--launcher=ray` goes without
    saying.
    """
    for name, text in given(options).items():
        if name not in ("address", "launcher"):
            raise errors.ConfigError(
                f"--attach shows a run that is under way, so {text} would have no effect: leave "
                f"out --{name}, or start a run with --gin_file or --resume instead of --attach"
            )


def check(options: UpOptions) -> None:
    """Raises a ConfigError for a flag that cannot be what was meant."""
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise errors.ConfigError(f"--seed must lie in 0 to 2**32 - 1, got {options.seed}")
    for flag, value, least in (
        ("actors", options.actors, 1),
        ("evaluators", options.evaluators, 0),
        ("learners", options.learners, 1),
        ("replays", options.replays, 1),
        ("policies", options.policies, 0),
        ("max_restarts", options.max_restarts, 0),
        ("grace_seconds", options.grace_seconds, 0),
        ("replay_grace_seconds", options.replay_grace_seconds, 0),
    ):
        if not value >= least:  # So that a number that is none is refused, too.
            raise errors.ConfigError(f"--{flag} must be at least {least}, got {value}")
    if options.replay_port is not None and not 0 < options.replay_port < 2**16:
        raise errors.ConfigError(
            f"--replay_port must lie in 1 to {2**16 - 1}, got {options.replay_port}"
        )
    last_port = (options.replay_port or 0) + options.replays - 1
    if options.replay_port is not None and last_port >= 2**16:
        raise errors.ConfigError(
            f"--replay_port={options.replay_port}: {options.replays} replay servers take the ports "
            f"up to {last_port}, but {2**16 - 1} is the last one"
        )
    if options.launcher == "local" and options.address != AUTO:
        raise errors.ConfigError(
            f"--address={options.address} is that of a Ray cluster: add --launcher=ray"
        )
    if options.launcher == "local" and options.detach:
        raise errors.ConfigError(
            "--detach leaves a run to a Ray cluster: add --launcher=ray. On one machine, jobs end "
            "with their `up`: keep it in tmux or nohup"
        )
    given_registry(options)


def given_registry(options: UpOptions) -> str | None:
    """What the user says about the registry; None leaves it to the run directory.

    Raises:
      errors.ConfigError: If it would not be reached by all jobs.
    """
    url = options.registry or os.environ.get(connect.ENVIRONMENT_VARIABLE)
    if options.launcher == "ray":
        url = connect.registry_url(options.registry)  # Other nodes may not see the run directory.
    if url is not None and url.startswith("memory://"):
        raise errors.ConfigError(
            f"--registry={url} is within one process, so the jobs would not find one another: use "
            "a directory or redis://HOST:PORT"
        )
    return url
