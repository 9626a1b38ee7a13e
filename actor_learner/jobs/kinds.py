"""The kinds of jobs that every run has: the flags of each, and what makes its worker.

The modules of workers import TensorFlow and more. They are imported when a worker is made, not
before: the flags and the configuration are checked by then, and the job has shown itself.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Callable

from actor_learner.jobs import worker
from actor_learner.runs import warm_start
from actor_learner.support import errors


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of job.

    Attributes:
      help: What it is, in a few words.
      make: Makes its worker from the flags.
      add_flags: Adds the flags that it has besides those of every job.
      check_flags: Raises `errors.ConfigError` if they do not suit.
    """

    help: str
    make: Callable[[argparse.Namespace], worker.Worker]
    add_flags: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    check_flags: Callable[[argparse.Namespace], None] = lambda arguments: None


def _make_replay(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import replay

    return replay.ReplayJob(arguments.port)


def _make_actor(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import actor

    return actor.ActorJob()


def _make_learner(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import learner

    return learner.LearnerJob(arguments.num_evaluators)


def _make_evaluator(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import evaluator

    return evaluator.EvaluatorJob()


def _add_learner_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num_evaluators",
        type=int,
        default=0,
        help="how many evaluators will rate the final version, those included that start late "
        "(default: those that have shown themselves)",
    )
    warm_start.add_flag(parser)


def _add_replay_server_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, help="to listen on (default: a free one)")


def _check_learner_flags(arguments: argparse.Namespace) -> None:
    if arguments.num_evaluators < 0:
        raise errors.ConfigError(
            f"--num_evaluators must be 0 or more, got {arguments.num_evaluators}"
        )


KINDS: dict[str, Kind] = {
    "replay": Kind(
        "the replay server of a run of separate jobs", _make_replay, _add_replay_server_flags
    ),
    "actor": Kind("one of its actors (--index=N)", _make_actor),
    "learner": Kind("its learner", _make_learner, _add_learner_flags, _check_learner_flags),
    "evaluator": Kind("one of its evaluators; also: eval --run=RUN", _make_evaluator),
}
