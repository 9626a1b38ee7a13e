"""Combines what the launcher and the jobs themselves know into rows of the view."""

from __future__ import annotations

from collections.abc import Sequence

from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.launch import job_spec, supervised_job, view
from actor_learner.launch import status_reader as status_reader_lib
from actor_learner.support import formatting

_FIRST = ("learner", "replay", "policy", "actor", "evaluator")


def rows(
    jobs: Sequence[supervised_job.SupervisedJob],
    reader: status_reader_lib.StatusReader,
    now: float,
) -> list[view.JobRow]:
    """One row for each job: learner, replay, actors, evaluators, then the user's own."""
    statuses = {job.spec.name: status_of(job, reader) for job in jobs}
    newest = _newest_version(jobs, statuses)
    ordered = sorted(jobs, key=lambda job: (_place(job.spec), job.spec.kind, job.spec.index))
    return [_row(job, statuses[job.spec.name], newest, reader.problem, now) for job in ordered]


def status_of(
    job: supervised_job.SupervisedJob, reader: status_reader_lib.StatusReader
) -> status_lib.Status | None:
    """The latest status of the process that runs, or ran last; None if it has left none yet."""
    if job.process is None:
        return None
    return reader.status(job.spec.name, job.process.incarnation)


def _place(spec: job_spec.JobSpec) -> int:
    kind = _FIRST[0] if spec.trains_further_policy else spec.kind
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _newest_version(
    jobs: Sequence[supervised_job.SupervisedJob],
    statuses: dict[str, status_lib.Status | None],
) -> int | None:
    """The version of the learner, which is ahead of all others."""
    versions = [
        status.version
        for status in (statuses[job.spec.name] for job in jobs if job.spec.ends_run)
        if status is not None and status.version is not None
    ]
    return max(versions, default=None)


def _row(
    job: supervised_job.SupervisedJob,
    status: status_lib.Status | None,
    newest: int | None,
    problem: str,
    now: float,
) -> view.JobRow:
    state, note = _state(job, status, now)
    known = status or status_lib.Status(job.spec.kind, job.spec.index, state)
    lag = known.version_lag
    has_own_versions = job.spec.ends_run or job.spec.trains_further_policy
    if lag is None and newest is not None and known.version is not None and not has_own_versions:
        lag = max(0, newest - known.version)
    running = job.state == supervised_job.UP
    return view.JobRow(
        job.spec.name,
        job.spec.kind,
        state,
        known.steps_per_second if running else None,
        known.version,
        lag if running else None,
        job.restarts,
        problem if problem and running else note,
    )


def _state(
    job: supervised_job.SupervisedJob, status: status_lib.Status | None, now: float
) -> tuple[str, str]:
    """The state to show, and a note on it."""
    if job.ended:
        return job.state, job.last_words if job.state == supervised_job.FAILED else ""
    if job.state == supervised_job.WAITING:
        if job.process is None:
            return "starting", ""
        return "restarting", f"in {job.seconds_to_start(now):.0f} s"
    note = job.process.note or (_note(status) if status is not None else "")
    if job.stopping and (status is None or status.state in states.LIVE):
        return "stopping", note
    return ("starting" if status is None else status.state), note


def _note(status: status_lib.Status) -> str:
    """What the job says of itself; of the replay also how often its experience is used."""
    if status.failure is not None:
        return status.failure.type  # What it says is told by a message of its own.
    note = status.note()
    samples_per_insert = status.details.get("samples_per_insert")
    # Only beside the job's own message: a failure, or a poll that does not end, stands alone.
    if samples_per_insert is None or note != status.message:
        return note
    ratio = f"{formatting.number(samples_per_insert)} samples/insert"
    return f"{ratio}, {note}" if note else ratio
