"""Finds bindings that no job of a run has used: each job tells its own, and all are compared.

A job uses only a part of the configuration, so that alone it cannot tell a mistake from what is
meant for another job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actor_learner import config
from actor_learner.jobs import commands
from actor_learner.jobs import job as job_lib
from actor_learner.messaging import protocol
from actor_learner.support import errors

_KEY = "unused"


def answer_unknown(wire: protocol.Server) -> None:
    """Has a wire answer that the job does not know yet which bindings it will not use."""
    wire.handle(commands.UNUSED_BINDINGS, lambda request: request.answer({_KEY: None}))


def report(job: job_lib.Job) -> None:
    """Has the job's wire tell which bindings this process, having built all, has not used."""
    found = config.unused()
    job.wire.handle(commands.UNUSED_BINDINGS, lambda request: request.answer({_KEY: found}))


def read(body: Mapping[str, Any]) -> dict[str, str] | None:
    """What a job has answered: a line for each binding that it has not used; None if not known.

    Raises:
      errors.JobError: If it has answered something else.
    """
    found = body.get(_KEY)
    is_text = isinstance(found, dict) and all(isinstance(line, str) for line in found.values())
    if found is not None and not is_text:
        raise errors.JobError(f"not a list of unused bindings: {str(found)[:200]}")
    return found


def in_common(reported: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What none of the jobs has used, one line for each binding.

    Args:
      reported: By the name of each job, such as `actor-0`, what it has not used.
    """
    if not reported:
        return []
    everywhere = set.intersection(*(set(unused) for unused in reported.values()))
    # The learner builds most, so that its reasons say most; without one, any will do.
    reasons = reported.get("learner-0", next(iter(reported.values())))
    return [reasons[binding] for binding in reasons if binding in everywhere]
