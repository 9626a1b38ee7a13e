"""Finds bindings that no job of a run has used, by comparing what each job has not used.

A job uses only a part of the configuration, and cannot tell a mistake from a binding that is meant
for another job.
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
    """Makes a wire answer that the job does not know its unused bindings yet."""
    wire.handle(commands.UNUSED_BINDINGS, lambda request: request.answer({_KEY: None}))


def report(job: job_lib.Job) -> None:
    """Makes the job's wire answer with the bindings that this process, now built, has not used."""
    found = config.unused()
    job.wire.handle(commands.UNUSED_BINDINGS, lambda request: request.answer({_KEY: found}))


def read(body: Mapping[str, Any]) -> dict[str, str] | None:
    """Reads a job's answer: a line for each binding it has not used; None if it does not know.

    Raises:
      errors.JobError: If the answer is something else.
    """
    found = body.get(_KEY)
    is_text = isinstance(found, dict) and all(isinstance(line, str) for line in found.values())
    if found is not None and not is_text:
        raise errors.JobError(f"not a list of unused bindings: {str(found)[:200]}")
    return found


def in_common(reported: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Returns one line for each binding that no job has used.

    Args:
      reported: What each job has not used, by its name, such as `actor-0`.
    """
    if not reported:
        return []
    everywhere = set.intersection(*(set(unused) for unused in reported.values()))
    # The learner builds the most, so that its reasons are the best; without one, any will do.
    reasons = reported.get("learner-0", next(iter(reported.values())))
    return [reasons[binding] for binding in reasons if binding in everywhere]
