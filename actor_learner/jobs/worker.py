"""`Worker`: the base class of all jobs, ours and the user's own.

A worker is polled. Each poll does a bounded slice of work, so that it can be paused, resumed and
ended between two polls:

```python
@gin.configurable
class Counter(worker.Worker):
    def __init__(self, up_to: int = 1_000) -> None:     # Bound by gin.
        self._up_to, self._count = up_to, 0

    def configure(self) -> None:                        # Imports, connections: may take long.
        self._file = open(self.job.directory / "counts", "w")

    def poll(self) -> bool:                             # Done?
        self._count += 1
        print(self._count, file=self._file)
        return self._count == self._up_to

    def status(self) -> dict:                           # Shown to users.
        return {"steps": self._count}

    def close(self) -> None:                            # Always called, so: save here.
        self._file.close()
```
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from actor_learner.jobs import job as job_lib
from actor_learner.jobs import life_cycle

Job = job_lib.Job
PollResult = life_cycle.PollResult
Stopping = job_lib.Stopping


class Worker(abc.ABC):
    """Base class of all jobs. It has no constructor, so that yours need not call one.

    All methods are called from one thread, in this order: `configure`, then `poll` again and again,
    with `on_pause` and `on_resume` where asked for, then `save` and `close`; `status` between any
    two. An exception in any of them ends the job, after `close`, in the state `error`; the
    controller gets its traceback.

    Attributes:
      job: Describes the job: index, seed, run directory, registry, addresses of other jobs. Set
        before `configure` is called.
    """

    job: job_lib.Job

    def configure(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Prepares the worker. May take long; heartbeats continue, and the wire answers."""

    @abc.abstractmethod
    def poll(self) -> PollResult | bool | None:
        """Does one slice of work: ideally some tenths of a second, at most some seconds.

        Commands wait until it returns. If it must wait for something, it should do so with a
        deadline and check `job.stopping`, or return `PollResult(idle_seconds=...)` instead.

        Returns:
          Whether the work is done; the job then closes and completes. None means not done.
        """

    def status(self) -> Mapping[str, Any]:
        """Returns what to show of this worker: a small dict of JSON values.

        Every view shows `steps` (a count, from which a rate is computed), `version`, `version_lag`
        (whole numbers) and `message` (a few words); other keys become details. Called about once
        per second, between two polls; the job's wire answers with the latest.
        """
        return {}

    def on_pause(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Called before the worker is paused; it is not polled until `on_resume`."""

    def on_resume(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Called before a paused worker is polled again."""

    def save(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Saves what must outlive the job, through `unsaved.ledger()`. Called once before `close`,
        even after a failure, but not if `configure` has failed half-way, nor if a successor already
        owns the job's files. On a full disk it is tried again for a while before `close`."""

    def close(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Saves and frees what the worker holds. Called once, however it ends, even if `configure`
        has failed half-way; not if the process is killed. If `job.displaced`, a successor already
        owns the job's files: then it must not save."""

    def run(self, job: job_lib.Job) -> str:
        """Runs as `job`, from configuring to the end; blocks.

        Returns:
          The final state, `completed`.

        Raises:
          Exception: Whatever this worker raised, after it was closed.
        """
        return life_cycle.LifeCycle(job, lambda: self).run()
