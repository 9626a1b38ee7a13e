"""Describes a job to start, and the interface of what starts it."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from actor_learner import jobs_settings
from actor_learner.jobs.presence import names
from actor_learner.launch import restarts
from actor_learner.support import errors

GRACE_SECONDS = 60.0
"""How long a job that is asked to end may take, saving included."""

REPLAY_GRACE_SECONDS = 300.0
"""How long the replay server may take: it saves its contents, at seconds per gigabyte."""

_INDEX = "--index="
_STOP_RANKS = {"policy": 1, "learner": 2, "replay": 3}


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """One job, as a command line.

    Attributes:
      kind: replay, actor, learner, evaluator, `learner-POLICY` for the learner of a further policy,
        or the name of a user's own job.
      index: Which one of its kind.
      command: The program and its arguments.
      restart: What happens when it fails.
      environment: Variables to set, besides those that the launcher has. Secrets belong here: `ps`
        shows command lines, and the log keeps them.
      resources: What it needs of its node, such as `{"CPU": 1}`; for clusters only.
      grace_seconds: How long it may take to end when asked, saving included; then it is killed.
      tolerated: Whether the run continues without it when it has failed for good; one actor must
        be left.
    """

    kind: str
    index: int
    command: Sequence[str]
    restart: restarts.RestartPolicy = restarts.RestartPolicy()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    resources: Mapping[str, float] = dataclasses.field(default_factory=dict)
    grace_seconds: float = GRACE_SECONDS
    tolerated: bool = False

    @property
    def name(self) -> str:
        return names.job(self.kind, self.index)

    def with_index(self, index: int) -> JobSpec:
        """Returns the same job with another index, in its command as well.

        Raises:
          errors.JobError: If its command has no `--index`.
        """
        command = [
            f"{_INDEX}{index}" if argument.startswith(_INDEX) else argument
            for argument in self.command
        ]
        if not any(argument.startswith(_INDEX) for argument in command):
            raise errors.JobError(
                f"{self.name} has no --index in its command: another job cannot be made from it"
            )
        return dataclasses.replace(self, index=index, command=command)

    @property
    def ends_run(self) -> bool:
        """Whether the run is complete when this job is."""
        return self.kind == "learner" and self.index == 0  # The others follow the first.

    @property
    def trains_further_policy(self) -> bool:
        """Whether it trains a policy besides `main`, whose versions are its own."""
        return jobs_settings.is_further_learner(self.kind)

    @property
    def collects(self) -> bool:
        """Whether it makes experience, without which nothing is learned."""
        return self.kind == "actor"

    @property
    def finishes_alone(self) -> bool:
        """Whether it completes by itself, some time after those that end the run.

        An evaluator does: it has the final version to evaluate.
        """
        return self.kind == "evaluator"

    @property
    def stop_rank(self) -> int:
        """Jobs of lower rank are stopped first: clients before the servers they use."""
        return _STOP_RANKS.get("learner" if self.trains_further_policy else self.kind, 0)


class Process(Protocol):
    """A job that has been started."""

    @property
    def incarnation(self) -> str:
        """What its status in the registry carries, to tell it from its predecessors."""

    @property
    def note(self) -> str:
        """What the launcher knows about it that the job does not; empty for nothing."""

    def poll(self) -> int | None:
        """None while it runs; then its exit code, or minus the number of the signal it died of."""

    def terminate(self) -> None:
        """Asks it to end; it is killed if it has not after its `JobSpec.grace_seconds`."""

    def kill(self) -> None:
        """Ends it, and all that it has started, at once."""

    def forgo_grace(self) -> None:
        """From now on, the job is killed at once, not asked to end, if the launcher vanishes."""


class Launcher(Protocol):
    """Starts jobs, on this machine or elsewhere."""

    def launch(self, spec: JobSpec, restarts: int, log: pathlib.Path) -> Process:
        """Starts a job; what it prints is appended to `log`, here.

        Does not wait for the job to come up.
        """

    def close(self) -> None:
        """Frees what the launcher holds; its processes must have ended."""
