"""Defines the states of a worker and which may follow which, and the commands.

```
configuring ──▶ ready ──▶ running ◀──▶ paused
     │            │          │            │
     └────────────┴────┬─────┴────────────┘
                       ▼
             completed  or  error
```

No worker enters `lost`: it is how others see a worker whose heartbeats have stopped.
"""

from __future__ import annotations

from actor_learner.support import errors

CONFIGURING, READY, RUNNING, PAUSED = "configuring", "ready", "running", "paused"
COMPLETED, ERROR, LOST = "completed", "error", "lost"

LIVE = (CONFIGURING, READY, RUNNING, PAUSED)
ENDED = (COMPLETED, ERROR)
ALL = (*LIVE, *ENDED, LOST)

FOLLOWING: dict[str, tuple[str, ...]] = {
    CONFIGURING: (READY, COMPLETED, ERROR),
    READY: (RUNNING, COMPLETED, ERROR),
    RUNNING: (PAUSED, COMPLETED, ERROR),
    PAUSED: (RUNNING, COMPLETED, ERROR),
    COMPLETED: (),
    ERROR: (),
}
"""The states that may follow each state."""

START, PAUSE, RESUME, EXIT, PING = "start", "pause", "resume", "exit", "ping"
COMMANDS = (START, PAUSE, RESUME, EXIT, PING)

TOLD_TO_EXIT = 3
"""The exit code of a job that the command `exit` has ended before its work was done."""

FAILED_FOR_GOOD = 5
"""The exit code of a job that failed in a way that a restart does not cure."""

DONE_NOT_SAVED, ENDED_NOT_SAVED = 6, 7
"""The exit codes of a job that could not save because a disk is full: its work is done, or not."""

_MEANT_FOR = {START: (READY, RUNNING), PAUSE: (RUNNING, PAUSED), RESUME: (PAUSED, RUNNING)}
"""The state that each command needs, and the one it leads to; `exit` and `ping` suit all live."""


def check_transition(who: str, state: str, following: str) -> None:
    """Raises unless `following` may follow `state`.

    Raises:
      errors.JobError: Names the worker and the states that could follow.
    """
    allowed = FOLLOWING.get(state, ())
    if following not in allowed:
        can = " or ".join(allowed) if allowed else "nothing: it has ended"
        raise errors.JobError(f"{who} is {state}: it cannot become {following}, only {can}")


def check_command(command: str) -> None:
    """Raises unless the command exists.

    Raises:
      errors.JobError: Lists the commands.
    """
    if command not in COMMANDS:
        raise errors.JobError(f"'{command}' is not a command: use {', '.join(COMMANDS)}")


def suitable(command: str) -> tuple[str, ...]:
    """Returns the states in which workers can obey `command`."""
    return (_MEANT_FOR[command][0],) if command in _MEANT_FOR else LIVE


def state_after(who: str, state: str, command: str) -> str:
    """Returns the state that `command` leads to from `state`; for `exit` and `ping`, `state`.

    Raises:
      errors.JobError: If it is not a command, or is not allowed in `state`.
    """
    check_command(command)
    if command not in _MEANT_FOR:
        return state
    needed, following = _MEANT_FOR[command]
    if state != needed:
        raise errors.JobError(
            f"'{command}' needs a worker that is {needed}, but {who} is {state}"
            + (" already" if state == following else "")
        )
    check_transition(who, state, following)
    return following
