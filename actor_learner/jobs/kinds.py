"""Lists the kinds of jobs that every run has, with their flags and what makes their workers.

The modules of workers import TensorFlow. They are imported only when a worker is made: by then the
flags and the configuration are checked, and other jobs see this one.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Callable

from actor_learner import agent_spec, jobs_settings
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
      name: Returns the kind as which other jobs know it, given the flags; None if that never
        differs.
    """

    help: str
    make: Callable[[argparse.Namespace], worker.Worker]
    add_flags: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    check_flags: Callable[[argparse.Namespace], None] = lambda arguments: None
    name: Callable[[argparse.Namespace], str] | None = None


def _make_replay(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import replay

    return replay.ReplayJob(arguments.port, arguments.num_replays)


def _make_actor(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import actor

    return actor.ActorJob()


def _make_learner(arguments: argparse.Namespace) -> worker.Worker:
    from actor_learner.jobs.workers import further_learner, learner, learner_member

    if arguments.policy is not None:
        return further_learner.FurtherLearnerJob(arguments.policy)
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
    parser.add_argument(
        "--policy",
        help="train this policy, beside `main`, of a world with several (AgentSpec.agent); the "
        "other flags of a learner are for that of `main`",
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


def _name_of_learner(arguments: argparse.Namespace) -> str:
    policy = arguments.policy
    return "learner" if policy is None else jobs_settings.learner_of(policy)


def _check_learner_flags(arguments: argparse.Namespace) -> None:
    if arguments.policy is not None:
        _check_further_learner_flags(arguments)
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


def _check_further_learner_flags(arguments: argparse.Namespace) -> None:
    if not jobs_settings.is_further_learner(_name_of_learner(arguments)):
        raise errors.ConfigError(f"--policy={arguments.policy!r} is not the name of a policy")
    if arguments.policy == agent_spec.MAIN:
        raise errors.ConfigError(
            f"--policy={agent_spec.MAIN} is what the learner trains without this flag: leave it out"
        )
    for flag, usual in (("num_evaluators", 0), ("num_learners", 1)):
        if getattr(arguments, flag) != usual:
            raise errors.ConfigError(
                f"--{flag} is for the learner of `main`: leave it out with --policy"
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
        "a replay server of a run of separate jobs (--index=N of several)",
        _make_replay,
        _add_replay_server_flags,
        _check_replay_flags,
    ),
    "actor": Kind("an actor of such a run (--index=N)", _make_actor),
    "policy": Kind(
        "a job that chooses the actions of the actors, in batches (--index=N)", _make_policy
    ),
    "learner": Kind(
        "a learner of such a run (--policy=NAME: of a further policy)",
        _make_learner,
        _add_learner_flags,
        _check_learner_flags,
        _name_of_learner,
    ),
    "evaluator": Kind("an evaluator of such a run; also: eval --run=RUN", _make_evaluator),
}
