"""Bindings that none of a run's jobs has used: each job says what it has not, and all are compared.

A job uses but a part of the configuration, so that alone it cannot tell a mistake from what is
meant for another job.
"""

from __future__ import annotations

import json

from absl import logging

from actor_learner import config
from actor_learner.jobs import job as job_lib
from actor_learner.jobs import names
from actor_learner.naming import entries, name_errors, registry


def report(job: job_lib.Job) -> None:
    """Leaves in the registry which bindings this process, having built everything, has not used.

    A registry that does not answer, or has no room for so many, is only logged: nothing depends on
    it but a warning.
    """
    text = json.dumps(config.unused())
    if len(text) > entries.LONGEST_VALUE:
        logging.warning("%s uses so few of the bindings that it cannot say which", job)
        return
    try:
        job.names.add(names.unused(job.run, job.kind, job.index), text, replace=True)
    except name_errors.RegistryUnavailableError as error:
        logging.warning("%s could not say which bindings it does not use: %s", job, error)


def in_common(registry_: registry.NameRegistry, run: str, jobs: list[str]) -> list[str] | None:
    """What none of the jobs has used, one line for each binding; None if not all have said so yet.

    Args:
      registry_: Of the run.
      run: Its name.
      jobs: All jobs of the run, such as `actor-0`.

    Raises:
      name_errors.RegistryUnavailableError: If the registry does not answer.
    """
    found = registry_.find_subtree(names.jobs(run))
    reported: list[dict[str, str]] = []
    for job in jobs:
        kind, _, index = job.rpartition("-")
        text = found.get(names.unused(run, kind, int(index)))
        if text is None:
            return None
        reported.append(json.loads(text))
    if not reported:
        return []
    everywhere = set.intersection(*(set(unused) for unused in reported))
    # The learner builds most, so that its reasons say most; without one, any will do.
    reasons = dict(zip(jobs, reported)).get("learner-0", reported[0])
    return [reasons[binding] for binding in reasons if binding in everywhere]
