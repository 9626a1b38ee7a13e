"""Trains reinforcement-learning agents, in one process or as separate jobs.

Nothing here imports TensorFlow before the configuration has been checked, so that a typo is
reported in a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from actor_learner import __version__, config
from actor_learner.commands import (
    control,
    keys,
    params,
    plot,
    run_paths,
    scale,
    tournament,
    tune_actor,
    up,
)
from actor_learner.commands import help as help_command
from actor_learner.configuring import flag_parser
from actor_learner.jobs import flags, kinds
from actor_learner.jobs import main as jobs_main
from actor_learner.runs import warm_start
from actor_learner.support import errors

JOBS = {
    **{name: kind.help for name, kind in kinds.KINDS.items()},
    jobs_main.CUSTOM: "one of your own jobs: custom NAME, as Jobs.extra calls it (--index=N)",
}

_FLAGS_OF_JOBS = (
    *("--run", "--gin_file", "--gin_param", "--gin_bindings", "--registry"),
    *("--index", "--hold", "--host"),
)

OK, FAILED, BAD_CONFIGURATION, SIGINT_EXIT = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the process's exit code.

    0: done. 1: failed. 2: the configuration or the arguments are wrong. 130, 143: ended by Ctrl-C
    or SIGTERM, with everything saved.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    job = _job(argv)
    if job is not None:
        return jobs_main.run([job, *argv[1:]])
    parser = _parser()
    if not argv:
        parser.print_help(sys.stderr)
        return BAD_CONFIGURATION
    arguments = parser.parse_args(argv)
    try:
        return arguments.command(arguments)
    except errors.REFUSALS as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    except errors.ActorLearnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return SIGINT_EXIT


def _job(argv: Sequence[str]) -> str | None:
    """The kind of job that the command line names; None if it names another command.

    `eval RUN` rates the best policy of a run; `eval` with flags of a job, such as `--run=RUN` or
    `--gin_file=FILE`, joins a run as its evaluator.
    """
    name = argv[0] if argv else ""
    if name == "eval":
        joins = any(argument.split("=")[0] in _FLAGS_OF_JOBS for argument in argv[1:])
        name = "evaluator" if joins else ""
    return name if name in JOBS else None


def _parser() -> argparse.ArgumentParser:
    parser = flag_parser.Parser(
        prog="actor-learner",
        description=__doc__.splitlines()[0],
        epilog="`actor-learner COMMAND --help` lists the flags of a command.",
    )
    parser.add_argument("--version", action="version", version=f"actor-learner {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    train = commands.add_parser("train", help="train in one process, from a gin file")
    config.add_flags(train)
    train.add_argument("--run_dir", help="where everything goes (default: a new one under runs/)")
    train.add_argument("--seed", type=int, help="seed of everything random (default: drawn)")
    train.add_argument(
        "--seeds",
        metavar="1,2,3",
        help="train once with each of these seeds, one after the other, in seed-N of --run_dir",
    )
    train.add_argument("--resume", metavar="RUN", help="resume the run in this directory")
    warm_start.add_flag(train)
    train.add_argument(
        "--dry_run", action="store_true", help="build everything, train nothing, leave nothing"
    )
    train.set_defaults(command=_train)

    up.add_parser(commands)
    for name, help_text in JOBS.items():
        commands.add_parser(name, help=help_text)  # `main` takes these over; here for the help.

    evaluate = commands.add_parser("eval", help="evaluate the best policy of a run")
    evaluate.add_argument(
        "run",
        nargs="*",
        help=f"run directories, or a pattern of them (default: ${flags.RUN_VARIABLE})",
    )
    evaluate.add_argument("--episodes", type=_positive, default=20)
    evaluate.add_argument("--seed", type=int, default=0, help="for other episodes (default: 0)")
    evaluate.add_argument("--video", metavar="OUT.mp4", help="write a video of one lane's episodes")
    evaluate.add_argument(
        "--record", metavar="DIRECTORY", help="record as many episodes, for others to learn from"
    )
    evaluate.set_defaults(command=_evaluate)

    check = commands.add_parser("check-env", help="look for mistakes in an environment")
    check.add_argument("id", help="Gymnasium id, e.g. CartPole-v1 or my_module:MyEnv-v0")
    check.add_argument("--steps", type=_positive, default=1000)
    check.set_defaults(command=_check_environment)

    tune_actor.add_parser(commands)
    control.add_parser(commands)
    scale.add_parser(commands)
    keys.add_parser(commands)
    params.add_parser(commands)
    plot.add_parser(commands)
    tournament.add_parser(commands)
    help_command.add_parser(commands)
    return parser


def _train(arguments: argparse.Namespace) -> int:
    from actor_learner.commands import seeds, train

    if arguments.seeds is not None:
        return seeds.run(arguments)
    return train.run(
        train.TrainOptions(
            gin_files=tuple(arguments.gin_file),
            bindings=tuple(arguments.gin_param),
            run_dir=arguments.run_dir,
            seed=arguments.seed,
            resume=arguments.resume,
            dry_run=arguments.dry_run,
        )
    )


def _evaluate(arguments: argparse.Namespace) -> int:
    from actor_learner.commands import evaluate

    places = arguments.run or [os.environ.get(flags.RUN_VARIABLE)]
    if not all(places):
        raise errors.ConfigError(f"which run? Give its directory, or set {flags.RUN_VARIABLE}")
    runs = run_paths.expand(places)
    if len(runs) > 1 and (arguments.video or arguments.record):
        raise errors.ConfigError(
            f"--video and --record are for one run, but {' '.join(places)} means {len(runs)}"
        )
    codes = [
        evaluate.run(
            str(run),
            episodes=arguments.episodes,
            seed=arguments.seed,
            video=arguments.video,
            record=arguments.record,
        )
        for run in runs
    ]
    return max(codes)


def _check_environment(arguments: argparse.Namespace) -> int:
    from actor_learner.commands import check_environment

    return check_environment.run(arguments.id, num_steps=arguments.steps)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
