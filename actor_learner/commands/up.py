"""`actor-learner up`: one run as separate jobs, on this machine or on a Ray cluster."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence

from actor_learner import config, frozen_config, import_path, run_directory
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import settings
from actor_learner.jobs.presence import host_address, names, rendezvous
from actor_learner.launch import forking, job_spec, local, restarts, run_jobs
from actor_learner.messaging import keys as keys_lib
from actor_learner.naming import connect
from actor_learner.reporting import log_limit, process_output
from actor_learner.runs import warm_start
from actor_learner.support import errors

JOB = "up"
DEFAULT_RESOURCES = {"CPU": 1.0}


@dataclasses.dataclass(frozen=True)
class UpOptions:
    """The flags of the command, as the user gave them."""

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...]
    actors: int = 1
    evaluators: int = 1
    run_dir: str | None = None
    resume: str | None = None
    seed: int | None = None
    registry: str | None = None
    launcher: str = "local"
    address: str = "auto"
    max_restarts: int = restarts.RestartPolicy().most
    host: str | None = None
    replay_host: str | None = None
    replay_port: int | None = None
    grace_seconds: float = job_spec.GRACE_SECONDS
    replay_grace_seconds: float = job_spec.REPLAY_GRACE_SECONDS
    tolerate: tuple[str, ...] = ()


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("up", help="train as separate jobs: replay, learner, actors, ...")
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
    warm_start.add_flag(parser)
    parser.add_argument("--actors", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--evaluators", type=int, default=1, help="how many (default: 1)")
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
        "--address", default="auto", help="of the Ray cluster, for --launcher=ray (default: auto)"
    )
    parser.add_argument(
        "--max_restarts",
        type=int,
        default=restarts.RestartPolicy().most,
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
        "--replay_port", type=int, metavar="PORT", help="of the replay server (default: a free one)"
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
    parser.set_defaults(command=_command)


def run(options: UpOptions) -> int:
    """Runs the jobs to the end of the run; returns the exit code of `run_jobs`.

    Raises:
      errors.ActorLearnerError: For what goes wrong before any job is started.
    """
    _check(options)
    with contextlib.ExitStack() as closing:
        server = None
        if options.launcher == "local":
            # First of all: it takes as long as everything else does until jobs are started.
            server = closing.enter_context(contextlib.closing(forking.ForkServer()))
        return _run(options, server)


def _run(options: UpOptions, server: forking.ForkServer | None) -> int:
    earlier = run_directory.RunDirectory.existing(options.resume) if options.resume else None
    source = _source(options, earlier)
    paths = import_path.of(source)
    if earlier is not None:
        paths = [*earlier.read_description().get("import_path", []), *paths]
    import_path.extend(paths)
    config.check(source)
    jobs = settings.declared(source)
    _check_tolerated(options.tolerate, jobs.extra)
    name = pathlib.Path(source.gin_files[-1]).stem
    run_dir = earlier or run_directory.RunDirectory.create(options.run_dir, name)
    with run_dir.locked():
        seed = _describe(options, run_dir, name, source, paths)
        registry = _registry(options, run_dir)
        run_name = names.run_name(str(run_dir.path.absolute()))
        host = options.host or _host(run_dir, registry, run_name)
        keys = _keys(options, run_dir, host)
        specs = make_specs(
            run_dir,
            registry=registry,
            seed=seed,
            actors=options.actors,
            evaluators=options.evaluators,
            own=jobs.extra,
            resources=jobs.resources,
            paths=paths,
            restart=restarts.RestartPolicy(most=options.max_restarts),
            replay_flags=_replay_flags(options),
            grace_seconds=options.grace_seconds,
            replay_grace_seconds=options.replay_grace_seconds,
            tolerate=options.tolerate,
            host=options.host if options.launcher == "local" else None,
            keys=keys,
        )
        with (
            process_output.capture_native_output(run_dir.log(JOB), capture_stdout=True) as output,
            log_limit.limited(output.log_path),
        ):
            print(f"run directory: {run_dir} (seed {seed})", file=output.terminal, flush=True)
            if options.launcher == "ray" and not registry.startswith(("redis", "unix")):
                print(
                    f"note: every node must see {registry}, where the jobs find one another",
                    file=output.terminal,
                    flush=True,
                )
            launcher = _launcher(options, run_dir, server)
            try:
                return run_jobs.run_jobs(
                    specs,
                    launcher,
                    run=run_name,
                    run_dir=run_dir,
                    registry=registry,
                    terminal=output.terminal,
                    host=host,
                    keys=keys,
                    # The learner may wait for one evaluator, and the launcher for another.
                    final_seconds=2 * jobs.final_evaluation_seconds,
                    no_actors_seconds=jobs.no_actors_seconds,
                    silent_seconds=jobs.silent_seconds,
                    stuck_seconds=jobs.stuck_seconds,
                )
            finally:
                launcher.close()


def make_specs(
    run_dir: run_directory.RunDirectory,
    *,
    registry: str,
    seed: int,
    actors: int,
    evaluators: int,
    own: Mapping[str, int] | None = None,
    resources: Mapping[str, Mapping[str, float]] | None = None,
    paths: Sequence[str] = (),
    restart: restarts.RestartPolicy | None = None,
    replay_flags: Sequence[str] = (),
    grace_seconds: float = job_spec.GRACE_SECONDS,
    replay_grace_seconds: float = job_spec.REPLAY_GRACE_SECONDS,
    tolerate: Collection[str] = (),
    host: str | None = None,
    keys: keys_lib.RunKeys | None = None,
) -> list[job_spec.JobSpec]:
    """The jobs of a run whose configuration is in its directory.

    Args:
      run_dir: The run directory.
      registry: URL of the name registry.
      seed: The run's seed.
      actors: How many.
      evaluators: How many.
      own: How many of each of the user's own jobs, by its name.
      resources: What each kind needs of its node; others need one CPU.
      paths: Where modules that gin files import are looked for, besides Python's own path.
      restart: What happens when a job fails.
      replay_flags: Of the replay job alone: `--host`, `--port`.
      grace_seconds: How long a job that is asked to end may take.
      replay_grace_seconds: How long the replay job may.
      tolerate: Kinds of jobs without which the run goes on.
      host: How other machines reach those that the jobs are started on; None leaves it to them.
      keys: Of the run; handed to the jobs by their environment, which neither `ps` nor a log shows.
    """
    shared = [
        f"--gin_file={run_dir.config.absolute()}",
        f"--run={run_dir.path.absolute()}",
        f"--seed={seed}",
        *([] if host is None else [f"--host={host}"]),
    ]
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *paths])),
        connect.ENVIRONMENT_VARIABLE: registry,  # Its password is not for `ps` and logs.
        **forking.ENVIRONMENT,
        **({} if keys is None else {keys_lib.VARIABLE: keys.to_json()}),
    }
    needed = {} if resources is None else resources

    def spec(kind: str, index: int, program: str, *more: str) -> job_spec.JobSpec:
        command = [sys.executable, "-m", "actor_learner.jobs.main", program, *shared]
        return job_spec.JobSpec(
            kind,
            index,
            [*command, f"--index={index}", *more],
            restart=restart or restarts.RestartPolicy(),
            environment=environment,
            resources=needed.get(kind, DEFAULT_RESOURCES),
            grace_seconds=replay_grace_seconds if kind == "replay" else grace_seconds,
            tolerated=kind in tolerate,
        )

    # One that may fail for good is waited for only while it shows itself.
    awaited_evaluators = 0 if "evaluator" in tolerate else evaluators
    return [
        spec("replay", 0, "replay", *replay_flags),
        spec("learner", 0, "learner", f"--num_evaluators={awaited_evaluators}"),
        *(spec("actor", index, "actor") for index in range(actors)),
        *(spec("evaluator", index, "evaluator") for index in range(evaluators)),
        *(
            spec(name, index, "custom", f"--job={name}")
            for name, count in (own or {}).items()
            for index in range(count)
        ),
    ]


def _command(arguments: argparse.Namespace) -> int:
    return run(
        UpOptions(
            gin_files=tuple(arguments.gin_file),
            bindings=tuple(arguments.gin_param),
            actors=arguments.actors,
            evaluators=arguments.evaluators,
            run_dir=arguments.run_dir,
            resume=arguments.resume,
            seed=arguments.seed,
            registry=arguments.registry,
            launcher=arguments.launcher,
            address=arguments.address,
            max_restarts=arguments.max_restarts,
            host=arguments.host,
            replay_host=arguments.replay_host,
            replay_port=arguments.replay_port,
            grace_seconds=arguments.grace_seconds,
            replay_grace_seconds=arguments.replay_grace_seconds,
            tolerate=tuple(filter(None, arguments.tolerate.split(","))),
        )
    )


def _check(options: UpOptions) -> None:
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise errors.ConfigError(f"--seed must lie in 0 to 2**32 - 1, got {options.seed}")
    for flag, value, least in (
        ("actors", options.actors, 1),
        ("evaluators", options.evaluators, 0),
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
    if options.launcher == "local" and options.address != "auto":
        raise errors.ConfigError(
            f"--address={options.address} is that of a Ray cluster: add --launcher=ray"
        )
    _given_registry(options)


def _check_tolerated(tolerate: Sequence[str], own: Collection[str]) -> None:
    dispensable = ("actor", "evaluator", *own)
    for kind in tolerate:
        if kind not in dispensable:
            raise errors.ConfigError(
                f"--tolerate={kind}: a run can do without these only: {', '.join(dispensable)}"
            )


def _source(options: UpOptions, earlier: run_directory.RunDirectory | None) -> config.ConfigSource:
    if earlier is not None:
        if options.run_dir or options.gin_files:
            raise errors.ConfigError(
                "--resume resumes a run as it was configured: leave out --run_dir and "
                "--gin_file; single values can be changed with --gin_param"
            )
        warm_start.refuse_to_resume(options.bindings)
        return config.ConfigSource((str(earlier.config),), options.bindings)
    if not options.gin_files:
        raise errors.ConfigError(
            "up needs --gin_file=FILE. Ready-made: " + ", ".join(config.leaves())
        )
    return config.ConfigSource(options.gin_files, options.bindings)


def _describe(
    options: UpOptions,
    run_dir: run_directory.RunDirectory,
    name: str,
    source: config.ConfigSource,
    paths: Sequence[str],
) -> int:
    """Writes description and configuration into the run directory; returns the seed."""
    if options.resume:
        seed = run_dir.read_description()["seed"] if options.seed is None else options.seed
        run_dir.describe_resumption(sys.argv)
        frozen_config.extend(run_dir, options.bindings)
        return seed
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    run_dir.describe(seed=seed, argv=sys.argv, name=name, import_path=list(paths))
    frozen_config.write(run_dir, source)
    return seed


def _registry(options: UpOptions, run_dir: run_directory.RunDirectory) -> str:
    url = _given_registry(options) or str(rendezvous.registry_in(run_dir))
    return url if "://" in url else str(pathlib.Path(url).expanduser().absolute())


def _host(run_dir: run_directory.RunDirectory, registry: str, run: str) -> str:
    """How other machines, if there may be any, reach this one."""
    with connect.connect(registry, who=JOB) as found:
        return host_address.own_host(job_lib.Job(names.LAUNCHER, 0, run, found, run_dir=run_dir))


def _keys(
    options: UpOptions, run_dir: run_directory.RunDirectory, host: str
) -> keys_lib.RunKeys | None:
    """The keys of the run, made if other machines may take part; None if none are needed."""
    hosts = [host, options.replay_host or "localhost"]
    if options.launcher == "local" and all(map(keys_lib.is_loopback, hosts)):
        return rendezvous.keys_of(run_dir)
    return rendezvous.make_keys(run_dir)


def _given_registry(options: UpOptions) -> str | None:
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


def _replay_flags(options: UpOptions) -> list[str]:
    given = {"host": options.replay_host, "port": options.replay_port}
    return [f"--{flag}={value}" for flag, value in given.items() if value is not None]


def _launcher(
    options: UpOptions,
    run_dir: run_directory.RunDirectory,
    server: forking.ForkServer | None,
) -> job_spec.Launcher:
    if options.launcher == "local":
        return local.LocalLauncher(server)
    from actor_learner.launch import ray

    return ray.RayLauncher(
        options.address,
        namespace=names.run_name(str(run_dir.path.absolute())),
        files=frozen_config.contents(run_dir),
        files_from=run_dir.path.absolute(),
    )
