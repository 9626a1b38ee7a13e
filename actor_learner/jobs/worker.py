"""`Worker`: what every job of a run is, ours and the user's own.

A worker is polled. Each poll does a bounded slice of work, so that between two of them it can be
paused, resumed, asked to end:

```python
@gin.configurable
class Counter(worker.Worker):
    def __init__(self, up_to: int = 1_000) -> None:     # What gin binds.
        self._up_to, self._count = up_to, 0

    def configure(self) -> None:                        # Imports, connections: may take long.
        self._file = open(self.job.directory / "counts", "w")

    def poll(self) -> bool:                             # Done?
        self._count += 1
        print(self._count, file=self._file)
        return self._count == self._up_to

    def status(self) -> dict:                           # What others see of it.
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
    """Base of all jobs. A constructor of your own need not call this one's: there is none.

    All methods are called from one thread, in this order: `configure`, then `poll` again and again,
    with `on_pause` and `on_resume` where asked for, then `save` and `close`; `status` between any
    two. An exception of any of them ends the job, with the state `error`, after `close`; the
    controller gets its traceback.

    Attributes:
      job: Its place in the run: index, seed, run directory, registry, addresses of the others. Set
        before `configure` is called.
    """

    job: job_lib.Job

    def configure(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Gets everything ready. May take long; heartbeats go on, and the wire answers."""

    @abc.abstractmethod
    def poll(self) -> PollResult | bool | None:
        """Does one slice of work, best of some tenths of a second, at most of some seconds.

        Commands wait while it runs. One that must wait for something should do so with a deadline,
        and look at `job.stopping`, or return `PollResult(idle_seconds=...)` instead.

        Returns:
          Whether the work is done; the job then closes and completes. None means that it is not.
        """

    def status(self) -> Mapping[str, Any]:
        """What to show of this worker: a small dict that JSON can write.

        `steps` (a count, from which its rate is worked out), `version`, `version_lag` (whole
        numbers) and `message` (a few words) have a place in every view; all else is carried along.
        Asked for about once per second, between two polls; who asks the job is told the latest.
        """
        return {}

    def on_pause(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Called before the worker is paused; it is not polled until `on_resume`."""

    def on_resume(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Called before a paused worker is polled again."""

    def save(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Saves what is to outlive the job, by way of `unsaved.ledger()`. Called once before
        `close`, even after a failure, but not if `configure` has failed half-way, nor if a
        successor writes the job's files already. What finds the disk full is tried again for a
        while before `close` is called."""

    def close(self) -> None:  # noqa: B027 - nothing to do is fine.
        """Saves and frees what the worker holds. Called once, however it ends, even if `configure`
        has failed half-way; not if the process is killed. If `job.displaced`, a successor writes
        the job's files already: then it must not save."""

    def run(self, job: job_lib.Job) -> str:
        """Lives as `job`, from configuring to the end; blocks.

        Returns:
          The last state, `completed`.

        Raises:
          Exception: Whatever this worker raised, after it was closed.
        """
        return life_cycle.LifeCycle(job, lambda: self).run()
