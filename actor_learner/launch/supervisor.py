"""Runs the jobs of a run to its end: starts them, keeps them running, stops them in order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple

from absl import logging

from actor_learner import jobs_settings, run_directory
from actor_learner.launch import failures as failures_lib
from actor_learner.launch import job_rows, job_spec, lane_advice, supervised_job, watchdog
from actor_learner.launch import scaling as scaling_lib
from actor_learner.launch import status_reader as status_reader_lib
from actor_learner.launch import view as view_lib
from actor_learner.support import errors

COMPLETED, FAILED, INTERRUPTED, STOPPED = "completed", "failed", "interrupted", "stopped"

FINAL_SECONDS = 600.0
"""How long evaluators may take for the final version, once training is complete."""

_TICK_SECONDS = 0.1


class Outcome(NamedTuple):
    """How a run has ended.

    Attributes:
      status: COMPLETED, FAILED, INTERRUPTED by a signal, or STOPPED by a controller.
      lines: What to tell the user, after the view is closed.
      bad_configuration: Whether a job said that its configuration is wrong.
      without: Jobs that have failed for good, which was tolerated.
    """

    status: str
    lines: list[str]
    bad_configuration: bool = False
    without: Sequence[str] = ()


class Supervisor:
    """Runs the jobs of one run until it ends.

    The run is complete when its learner is; without a learner, when all jobs are. Actors and the
    user's own jobs are then stopped, and evaluators get time to evaluate the final version. The
    learner is stopped next, if it still runs, and the replay server last. Jobs are stopped in the
    same order when the run is interrupted, when a job fails for good and its spec does not
    tolerate that, and when a controller has ended the learner. If a controller has ended all
    actors, the run is given up after a while, since its learner would wait for ever.

    Args:
      specs: The jobs.
      launcher: Starts them.
      reader: Has their statuses; started.
      run_dir: Takes their logs.
      view: Shows them; not yet started.
      stop: Set from anywhere to end the run in order.
      scaling: Requests for more or fewer actors.
      final_seconds: How long evaluators may take after the learner has completed.
      no_actors_seconds: How long a run may be without actors.
      silent_seconds: How long a job may be silent before it is restarted.
      stuck_seconds: How long one poll of a job may last before the job is restarted.
    """

    def __init__(
        self,
        specs: Sequence[job_spec.JobSpec],
        launcher: job_spec.Launcher,
        reader: status_reader_lib.StatusReader,
        run_dir: run_directory.RunDirectory,
        view: view_lib.JobsView,
        stop: threading.Event,
        *,
        scaling: scaling_lib.ScaleRequests | None = None,
        final_seconds: float = FINAL_SECONDS,
        no_actors_seconds: float = jobs_settings.NO_ACTORS_SECONDS,
        silent_seconds: float = jobs_settings.SILENT_SECONDS,
        stuck_seconds: float = jobs_settings.STUCK_SECONDS,
    ) -> None:
        self._launcher = launcher
        self._run_dir = run_dir
        self._reader = reader
        self._view = view
        self._stop = stop
        self._final_seconds = final_seconds
        self._scaling = scaling or scaling_lib.ScaleRequests()
        self._no_actors_seconds = no_actors_seconds
        self._no_actors_since: float | None = None
        self._said_no_actors = False
        self._watchdog = watchdog.Watchdog(
            view.message, silent_seconds=silent_seconds, stuck_seconds=stuck_seconds
        )
        self._failures = failures_lib.Failures(view.message)
        self._lane_advisor = lane_advice.LaneAdvisor(view.message)
        self._told_of_unused = False
        # Jobs that serve others are started first.
        ordered = sorted(specs, key=lambda spec: (-spec.stop_rank, spec.kind, spec.index))
        self._jobs = [self._supervised(spec) for spec in ordered]
        self._leaving: list[supervised_job.SupervisedJob] = []
        self._actor_spec = next((spec for spec in ordered if spec.collects), None)

    def run(self) -> Outcome:
        """Blocks until everything has ended; nothing is left running, whatever happens."""
        self._view.start()
        try:
            status = self._supervise()
            self._scaling.end()
            late = self._late() if status == COMPLETED else []
            lines = self._explain(late)
            self._stop_in_order()
            unsaved = self._unsaved()
            lines += unsaved
            fatal = self._fatal()
            return Outcome(
                FAILED if late or unsaved else status,
                lines,
                any(job.bad_configuration for job in fatal),
                [job.spec.name for job in self._failed() if job not in fatal],
            )
        finally:
            self._end_rest()
            self._view.close()

    def _supervise(self) -> str:
        status = self._until(self._complete)
        if status != COMPLETED:
            return status
        self._scaling.end()
        self._view.message("training is complete")
        for job in self._jobs:
            if job.spec.stop_rank == 0 and not job.spec.finishes_alone:
                job.stop()
        last = [job for job in self._jobs if job.spec.finishes_alone]
        deadline = time.monotonic() + self._final_seconds
        return self._until(lambda: all(job.ended for job in last) or time.monotonic() > deadline)

    def _until(self, reached: Callable[[], bool]) -> str:
        """Watches the jobs until `reached()` is true, one has failed, or the user interrupts."""
        while True:
            self._tick()
            self._scale()
            if self._fatal() or self._is_starved(time.monotonic()):
                return FAILED
            decisive = self._decisive()
            if all(job.ended for job in decisive) and not self._complete():
                return STOPPED
            if reached():
                return COMPLETED
            if self._stop.wait(_TICK_SECONDS):
                return INTERRUPTED

    def _supervised(self, spec: job_spec.JobSpec) -> supervised_job.SupervisedJob:
        return supervised_job.SupervisedJob(
            spec, self._launcher, self._run_dir.log(spec.kind, spec.index), self._view.message
        )

    def _scale(self) -> None:
        """Obeys requests for more or fewer actors; forgets actors that have ended on request."""
        for job in [job for job in self._leaving if job.ended]:
            self._leaving.remove(job)
            self._jobs.remove(job)
        for job in self._leaving:
            job.end_late()
        while (asked := self._scaling.next()) is not None:
            request, number = asked
            if self._actor_spec is None:
                request.refuse("this run was started without actors")
                continue
            try:
                started, ending = self._change_actors(number)
            except errors.JobError as error:
                request.refuse(str(error))
                continue
            self._reader.expect(job.spec.name for job in self._jobs if job not in self._leaving)
            self._view.message(
                f"actors wanted: {number}; "
                + (f"{', '.join(started)} started" if started else "")
                + (f"{', '.join(ending)} asked to end" if ending else "")
                + ("" if started or ending else "there are that many")
            )
            request.answer({"started": started, "ending": ending})

    def _change_actors(self, number: int) -> tuple[list[str], list[str]]:
        """Starts or ends actors so that there are `number`; returns the names of both."""
        actors = [job for job in self._jobs if job.spec.collects]
        at_work = sorted(
            (job for job in actors if not job.ended and not job.stopping),
            key=lambda job: job.spec.index,
        )
        ending = at_work[number:][::-1]  # The highest first.
        for job in ending:
            job.stop()
            self._leaving.append(job)
        # Actors that failed for good are reported at the end; stopped ones may start again.
        free = [job for job in actors if job.ended and job.state != supervised_job.FAILED]
        taken = {job.spec.index for job in actors if job not in free}
        indices = (index for index in itertools.count() if index not in taken)
        started = []
        for index in itertools.islice(indices, max(0, number - len(at_work))):
            added = self._supervised(self._actor_spec.with_index(index))
            for job in free:
                if job.spec.index == index:
                    self._jobs.remove(job)
            self._jobs.append(added)
            started.append(added.spec.name)
        return started, [job.spec.name for job in ending]

    def _is_starved(self, now: float) -> bool:
        """Whether the run has had no actors for too long, whoever started them.

        Actors that have completed have done their work; those that have failed for good end the
        run at once.
        """
        actors = [job for job in self._jobs if job.spec.collects]
        if (
            not actors
            or not all(job.state == supervised_job.STOPPED for job in actors)
            or not any(job.spec.ends_run and not job.ended for job in self._jobs)
            or self._reader.any_alive(self._actor_spec.kind)
        ):
            self._no_actors_since, self._said_no_actors = None, False
            return False
        if self._no_actors_since is None:
            self._no_actors_since = now
        if now - self._no_actors_since >= watchdog.SAY_SECONDS and not self._said_no_actors:
            self._said_no_actors = True
            self._view.message(
                f"no actor is left: all were ended, and the learner waits for experience. Start "
                f"some with `actor-learner scale {self._run_dir} --actors=N`; the run ends "
                f"{self._no_actors_seconds:g} s after the last one (Jobs.no_actors_seconds)"
            )
        return now - self._no_actors_since >= self._no_actors_seconds

    def _failed(self) -> list[supervised_job.SupervisedJob]:
        return [job for job in self._jobs if job.state == supervised_job.FAILED]

    def _fatal(self) -> list[supervised_job.SupervisedJob]:
        """Jobs whose failure ends the run: it is not tolerated, or no actor is left."""
        # Actors that were asked to end because training is complete have done their work.
        acting = [j for j in self._jobs if j.spec.collects and (j.stopping or not j.ended)]
        return [
            job
            for job in self._failed()
            if not job.spec.tolerated or (job.spec.collects and not acting)
        ]

    def _complete(self) -> bool:
        return all(job.state == supervised_job.COMPLETED for job in self._decisive())

    def _decisive(self) -> list[supervised_job.SupervisedJob]:
        """Jobs whose end is the end of the run."""
        return [job for job in self._jobs if job.spec.ends_run] or self._jobs

    def _stop_in_order(self) -> None:
        hasty = False
        for rank in sorted({job.spec.stop_rank for job in self._jobs}):
            stopped = [job for job in self._jobs if job.spec.stop_rank == rank]
            for job in stopped:
                job.stop()
            while not all(job.ended for job in stopped):
                if self._end_late(stopped):
                    left = ", ".join(job.spec.name for job in stopped if not job.ended)
                    self._view.message(f"{left} cannot be killed, and may be left running")
                    break
                if self._stop.is_set() and not hasty:
                    # A second signal ends this process at once; the jobs must not save then.
                    hasty = True
                    for job in self._jobs:
                        job.forgo_grace()
                self._tick()
                time.sleep(_TICK_SECONDS)

    def _end_rest(self) -> None:
        """Ends all jobs if `run` itself has failed; they may still save."""
        left = [job for job in self._jobs if not job.ended]
        for job in left:
            job.stop()
        while any(not job.ended for job in left) and not self._end_late(left):
            for job in left:
                job.tick(time.monotonic())
            time.sleep(_TICK_SECONDS)

    @staticmethod
    def _end_late(stopped: Sequence[supervised_job.SupervisedJob]) -> bool:
        """Kills jobs whose grace is over; returns whether all that are left survive even that."""
        in_vain = [job.end_late() for job in stopped if not job.ended]
        return bool(in_vain) and all(in_vain)

    def _tick(self) -> None:
        now = time.monotonic()
        known = []
        for job in self._jobs:
            job.tick(now)
            if not self._reader.problem:  # Otherwise no job can be asked, and all seem silent.
                status = job_rows.status_of(job, self._reader)
                self._failures.look(job, status)
                self._watchdog.look(job, status, now)
                known += [] if status is None else [status]
        self._lane_advisor.look(known)
        self._view.update(job_rows.rows(self._jobs, self._reader, now))
        if not self._told_of_unused and self._reader.unused_bindings is not None:
            self._told_of_unused = True
            for line in self._reader.unused_bindings:
                logging.warning("No job uses this: %s", line)
                self._view.message(f"warning: {line} (in any job)")

    def _late(self) -> list[str]:
        """Evaluators that did not finish in their time after training was complete."""
        return [j.spec.name for j in self._jobs if j.spec.finishes_alone and not j.ended]

    def _unsaved(self) -> list[str]:
        """What jobs could not save because a disk was full, in their own words."""
        lines = []
        for job in self._jobs:
            if job.not_saved:
                self._reader.read_now()
                status = job_rows.status_of(job, self._reader)
                what = status.message if status is not None and status.message else "NOT SAVED"
                lines.append(f"{job.spec.name}: {what}: see {job.log}")
        return lines

    def _explain(self, late: Sequence[str]) -> list[str]:
        lines: list[str] = []
        failed = self._failed()
        if failed:
            self._reader.read_now()  # For the errors that they left.
        for job in failed:
            lines += self._failures.post_mortem(job, job_rows.status_of(job, self._reader))
        if self._is_starved(time.monotonic()):
            lines.append(
                f"no actor was left for {self._no_actors_seconds:g} s, since a controller had "
                "ended them all: without experience the learner would have waited for ever"
            )
        if late:
            lines.append(
                f"{', '.join(late)} did not finish within {self._final_seconds:g} s after training "
                "was complete: the final version may not have been evaluated"
            )
        return lines
