"""The states of a worker, and which may follow which.

```
configuring ──▶ ready ──▶ running ◀──▶ paused
     │            │          │            │
     └────────────┴────┬─────┴────────────┘
                       ▼
             completed  or  error
```

`lost` is a state nobody enters: it is what others see of a worker whose heartbeats have stopped.
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
"""The exit code of a job that failed in a way which starting it again does not cure."""

DONE_NOT_SAVED, ENDED_NOT_SAVED = 6, 7
"""The exit codes of a job that could not save because a disk is full: its work is done, or not."""

_MEANT_FOR = {START: (READY, RUNNING), PAUSE: (RUNNING, PAUSED), RESUME: (PAUSED, RUNNING)}
"""From which state each command leads to which; `exit` and `ping` suit every live state."""


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
    """Raises unless there is such a command.

    Raises:
      errors.JobError: Names the commands there are.
    """
    if command not in COMMANDS:
        raise errors.JobError(f"there is no command '{command}': there are {', '.join(COMMANDS)}")


def suitable(command: str) -> tuple[str, ...]:
    """The states of workers that `command` makes sense to."""
    return (_MEANT_FOR[command][0],) if command in _MEANT_FOR else LIVE


def state_after(who: str, state: str, command: str) -> str:
    """The state that `command` leads to from `state`; for `exit` and `ping` that is `state`.

    Raises:
      errors.JobError: If there is no such command, or it makes no sense in `state`.
    """
    check_command(command)
    if command not in _MEANT_FOR:
        return state
    needed, following = _MEANT_FOR[command]
    if state != needed:
        raise errors.JobError(
            f"{who} is {state}: '{command}' is for one that is {needed}"
            + (f", and it is {following} already" if state == following else "")
        )
    check_transition(who, state, following)
    return following
