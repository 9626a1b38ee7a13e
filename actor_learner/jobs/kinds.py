"""Lists the kinds of jobs that every run has, with their flags and what makes their workers.

The modules of workers import TensorFlow. They are imported only when a worker is made: by then the
flags and the configuration are checked, and other jobs see this one.
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
      help: Describes it in a few words.
      make: Makes its worker from the flags.
      add_flags: Adds the flags that only this kind has.
      check_flags: Raises `errors.ConfigError` if they are wrong.
    """

    help: str
    make: Callable[[argparse.Namespace], worker.Worker]
    add_flags: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    check_flags: Callable[[argparse.Namespace], None] = lambda arguments: None


def _make_replay(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import replay

    return replay.ReplayJob(arguments.port, arguments.num_replays)


def _make_actor(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import actor

    return actor.ActorJob()


def _make_learner(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import learner, learner_member

    if arguments.index > 0:
        return learner_member.LearnerMemberJob(arguments.num_learners)
    return learner.LearnerJob(arguments.num_evaluators, arguments.num_learners)


def _make_evaluator(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import evaluator

    return evaluator.EvaluatorJob()


def _make_policy(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import policy

    return policy.PolicyJob()


def _add_learner_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num_evaluators",
        type=int,
        default=0,
        help="how many evaluators will rate the final version, including late ones "
        "(default: those that have joined by then)",
    )
    parser.add_argument(
        "--num_learners",
        type=int,
        default=1,
        help="how many learners share each batch; the first one (--index=0) saves and publishes "
        "(default: 1)",
    )
    warm_start.add_flag(parser)


def _add_replay_server_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, help="to listen on (default: a free one)")
    parser.add_argument(
        "--num_replays",
        type=int,
        default=1,
        help="how many replay servers share the tables, the same for all of them (default: 1)",
    )


def _check_learner_flags(arguments: argparse.Namespace) -> None:
    if arguments.num_evaluators < 0:
        raise errors.ConfigError(
            f"--num_evaluators={arguments.num_evaluators} is negative: use 0 or more"
        )
    if arguments.num_learners < 1:
        raise errors.ConfigError(f"--num_learners={arguments.num_learners} must be at least 1")
    if arguments.index >= arguments.num_learners:
        raise errors.ConfigError(
            f"--index={arguments.index} is out of range: the run has {arguments.num_learners} "
            "learner(s), counted from 0 (--num_learners)"
        )


def _check_replay_flags(arguments: argparse.Namespace) -> None:
    if arguments.num_replays < 1:
        raise errors.ConfigError(f"--num_replays={arguments.num_replays} must be at least 1")
    if arguments.index >= arguments.num_replays:
        raise errors.ConfigError(
            f"--index={arguments.index} is out of range: the run has {arguments.num_replays} "
            "replay server(s), counted from 0 (--num_replays)"
        )


KINDS: dict[str, Kind] = {
    "replay": Kind(
        "one of its replay servers",
        _make_replay,
        _add_replay_server_flags,
        _check_replay_flags,
    ),
    "actor": Kind("one of its actors (--index=N)", _make_actor),
    "policy": Kind("one that chooses actions for actors, in batches (--index=N)", _make_policy),
    "learner": Kind("one of its learners", _make_learner, _add_learner_flags, _check_learner_flags),
    "evaluator": Kind("one of its evaluators; also: eval --run=RUN", _make_evaluator),
}
