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

from actor_learner import (
    config,
    frozen_config,
    import_path,
    jobs_settings,
    ray_settings,
    run_directory,
)
from actor_learner.commands import up_options
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.presence import names, rendezvous
from actor_learner.launch import (
    forking,
    job_spec,
    local,
    ray_driver,
    ray_supervisor,
    restarts,
    run_jobs,
)
from actor_learner.messaging import keys as keys_lib
from actor_learner.naming import connect
from actor_learner.reporting import log_limit, process_output
from actor_learner.runs import warm_start
from actor_learner.support import errors

JOB = "up"
_ASK_POLICIES = "Actor.inference_stream = 'remote'"
DEFAULT_RESOURCES = {"CPU": ray_settings.DEFAULT_CPUS}


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("up", help="train as separate jobs: replay, learner, actors, ...")
    up_options.add_flags(parser)
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    options = up_options.options_of(arguments)
    if arguments.attach is None:
        return run(options)
    up_options.check_attach(options)
    address = None if options.address == up_options.AUTO else options.address
    return ray_driver.attach(arguments.attach, address, sys.stderr)


def run(options: up_options.UpOptions) -> int:
    """Runs the jobs to the end of the run; returns the exit code of `run_jobs`.

    Raises:
      errors.ActorLearnerError: For what goes wrong before any job is started.
    """
    up_options.check(options)
    with contextlib.ExitStack() as closing:
        server = None
        if options.launcher == "local":
            # First of all: it takes as long as everything else does until jobs are started.
            server = closing.enter_context(contextlib.closing(forking.ForkServer()))
        return _run(options, server)


def _run(options: up_options.UpOptions, server: forking.ForkServer | None) -> int:
    earlier = run_directory.RunDirectory.existing(options.resume) if options.resume else None
    source = _source(options, earlier)
    paths = import_path.of(source)
    if earlier is not None:
        paths = [*earlier.read_description().get("import_path", []), *paths]
    import_path.extend(paths)
    config.check(source)
    source = _asking_policies(source, options.policies)
    jobs = jobs_settings.declared(source)
    further = config.further_policies(source)
    kinds = (*jobs_settings.OURS, *map(jobs_settings.learner_of, further), *jobs.extra)
    placing = ray_settings.declared(source, kinds)
    _check_tolerated(options.tolerate, jobs.extra)
    name = pathlib.Path(source.gin_files[-1]).stem
    run_dir = earlier or run_directory.RunDirectory.create(options.run_dir, name)
    with contextlib.ExitStack() as held:
        lock = held.enter_context(contextlib.ExitStack())
        lock.enter_context(run_dir.locked())
        # Whatever is refused before a job is started leaves no directory behind.
        refusing = held.enter_context(contextlib.ExitStack())
        refusing.enter_context(run_dir.discarded_if_refused((errors.ActorLearnerError,)))
        run_name = names.run_name(str(run_dir.path.absolute()))
        cluster = None
        if options.launcher == "ray":
            cluster = ray_driver.RayRun(
                options.address, run_name, run_dir, runtime_env=placing.runtime_env
            )
            held.callback(cluster.close)
            cluster.refuse_second()
        seed = _describe(options, run_dir, name, source, paths)
        registry = _registry(options, run_dir)
        host = options.host or _host(run_dir, registry, run_name)
        keys = _keys(options, run_dir, host)
        specs = make_specs(
            run_dir,
            registry=registry,
            seed=seed,
            actors=options.actors,
            evaluators=options.evaluators,
            learners=options.learners,
            further=further,
            replays=options.replays,
            policies=options.policies,
            own=jobs.extra,
            resources=placing.resources,
            paths=paths,
            restart=restarts.RestartPolicy(max_restarts=options.max_restarts),
            replay_host=options.replay_host,
            replay_port=options.replay_port,
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
            seconds = {
                # The learner may wait for one evaluator, and the launcher for another.
                "final_seconds": 2 * jobs.final_evaluation_seconds,
                "no_actors_seconds": jobs.no_actors_seconds,
                "silent_seconds": jobs.silent_seconds,
                "stuck_seconds": jobs.stuck_seconds,
            }
            resume = up_options.resume_command(options)
            if cluster is None:
                ray_driver.forget(run_dir)
                refusing.close()
                code = run_jobs.run_jobs(
                    specs,
                    local.LocalLauncher(server),
                    run=run_name,
                    run_dir=run_dir,
                    registry=registry,
                    terminal=output.terminal,
                    host=host,
                    keys=keys,
                    resume=resume,
                    **seconds,
                )
                return _without_refused(run_dir, code)
            cluster.begin(
                ray_supervisor.RunPlan(
                    run_name,
                    str(run_dir.path.absolute()),
                    specs,
                    registry,
                    placing,
                    keys=keys.to_json(),
                    host=options.host,
                    files=frozen_config.contents(run_dir),
                    files_from=str(run_dir.path.absolute()),
                    program=sys.executable,
                    seconds=seconds,
                    resume=resume,
                )
            )
            refusing.close()
            lock.close()  # The supervisor takes it.
            if options.detach:
                cluster.say_detached(output.terminal)
                return run_jobs.OK
            return _without_refused(run_dir, cluster.follow(output.terminal, owner=True))


def _without_refused(run_dir: run_directory.RunDirectory, code: int) -> int:
    """Removes the directory of a new run whose configuration a job has refused."""
    if code == run_jobs.BAD_CONFIGURATION:
        run_dir.discard()
    return code


def make_specs(
    run_dir: run_directory.RunDirectory,
    *,
    registry: str,
    seed: int,
    actors: int,
    evaluators: int,
    learners: int = 1,
    further: Sequence[str] = (),
    replays: int = 1,
    policies: int = 0,
    own: Mapping[str, int] | None = None,
    resources: Mapping[str, Mapping[str, float]] | None = None,
    paths: Sequence[str] = (),
    restart: restarts.RestartPolicy | None = None,
    replay_host: str | None = None,
    replay_port: int | None = None,
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
      learners: How many.
      further: Names of the policies that are trained beside `main`, by a learner each.
      replays: How many replay servers.
      policies: How many.
      own: How many of each of the user's own jobs, by its name.
      resources: What each kind needs of its node; others need one CPU, and learners of further
        policies what the learner needs.
      paths: Where modules that gin files import are looked for, besides Python's own path.
      restart: What happens when a job fails.
      replay_host: How the others reach the replay servers; None leaves it to them.
      replay_port: Of the first replay server, the others have those that follow; None: free ones.
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
            resources=needed.get(kind, needed.get(program, DEFAULT_RESOURCES)),
            grace_seconds=replay_grace_seconds if kind == "replay" else grace_seconds,
            tolerated=kind in tolerate,
        )

    # One that may fail for good is waited for only while it shows itself.
    awaited_evaluators = 0 if "evaluator" in tolerate else evaluators
    return [
        *(
            spec(
                *("replay", index, "replay"),
                *([] if replays == 1 else [f"--num_replays={replays}"]),
                *([] if replay_host is None else [f"--host={replay_host}"]),
                *([] if replay_port is None else [f"--port={replay_port + index}"]),
            )
            for index in range(replays)
        ),
        *(
            spec(
                *("learner", index, "learner"),
                *([] if learners == 1 else [f"--num_learners={learners}"]),
                f"--num_evaluators={awaited_evaluators}",
            )
            for index in range(learners)
        ),
        *(
            spec(jobs_settings.learner_of(policy), 0, "learner", f"--policy={policy}")
            for policy in further
        ),
        *(spec("policy", index, "policy") for index in range(policies)),
        *(spec("actor", index, "actor") for index in range(actors)),
        *(spec("evaluator", index, "evaluator") for index in range(evaluators)),
        *(
            spec(name, index, "custom", f"--job={name}")
            for name, count in (own or {}).items()
            for index in range(count)
        ),
    ]


def _check_tolerated(tolerate: Sequence[str], own: Collection[str]) -> None:
    dispensable = ("actor", "evaluator", *own)
    for kind in tolerate:
        if kind not in dispensable:
            raise errors.ConfigError(
                f"--tolerate={kind}: a run can do without these only: {', '.join(dispensable)}"
            )


def _source(
    options: up_options.UpOptions, earlier: run_directory.RunDirectory | None
) -> config.ConfigSource:
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


def _asking_policies(source: config.ConfigSource, policies: int) -> config.ConfigSource:
    """The configuration of actors that ask policy jobs, if there are to be any.

    Raises:
      errors.ConfigError: If there are none, but it says that actors ask them.
    """
    bound = config.bindings_of(source, "Actor").get("inference_stream")
    is_remote = bound is not None and bound.value == "remote"
    if policies and not is_remote:
        return dataclasses.replace(source, bindings=(*source.bindings, _ASK_POLICIES))
    if is_remote and not policies:
        raise errors.ConfigError(
            f"{bound.origin}: Actor.inference_stream is 'remote', but there are no policy jobs to "
            "ask: pass --policies=1, or more; or let each actor run its policy itself, by "
            "--gin_param=\"Actor.inference_stream = 'inline'\""
        )
    return source


def _describe(
    options: up_options.UpOptions,
    run_dir: run_directory.RunDirectory,
    name: str,
    source: config.ConfigSource,
    paths: Sequence[str],
) -> int:
    """Writes description and configuration into the run directory; returns the seed."""
    if options.resume:
        seed = run_dir.read_description()["seed"] if options.seed is None else options.seed
        run_dir.describe_resumption(sys.argv)
        frozen_config.extend(run_dir, source.bindings)
        return seed
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    run_dir.describe(seed=seed, argv=sys.argv, name=name, import_path=list(paths))
    frozen_config.write(run_dir, source)
    return seed


def _registry(options: up_options.UpOptions, run_dir: run_directory.RunDirectory) -> str:
    url = up_options.given_registry(options) or str(rendezvous.registry_in(run_dir))
    return url if "://" in url else str(pathlib.Path(url).expanduser().absolute())


def _host(run_dir: run_directory.RunDirectory, registry: str, run: str) -> str:
    """How other machines, if there may be any, reach this one."""
    with connect.connect(registry, who=JOB) as found:
        return rendezvous.own_host(job_lib.Job(names.LAUNCHER, 0, run, found, run_dir=run_dir))


def _keys(
    options: up_options.UpOptions, run_dir: run_directory.RunDirectory, host: str
) -> keys_lib.RunKeys | None:
    """The keys of the run, made if other machines may take part; None if none are needed."""
    hosts = [host, options.replay_host or "localhost"]
    if options.launcher == "local" and all(map(keys_lib.is_loopback, hosts)):
        return rendezvous.keys_of(run_dir)
    return rendezvous.make_keys(run_dir)
