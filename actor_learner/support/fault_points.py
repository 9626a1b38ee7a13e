"""Names points at which a test can have a process die as if by `kill -9`, or stop as if by Ctrl-Z.

`ACTOR_LEARNER_DIE_AT='report counted,turn taken@/a/directory'` ends the process that first gets to
each of these points, and leaves a marker of that name in the directory, so that its successor
lives. `ACTOR_LEARNER_STOP_AT` has the process stop (SIGSTOP) until somebody continues it. Without
the variables a point costs a comparison.
"""

from __future__ import annotations

import os
import pathlib
import signal

DIE_VARIABLE, STOP_VARIABLE = "ACTOR_LEARNER_DIE_AT", "ACTOR_LEARNER_STOP_AT"

REPORT_COUNTED = "report counted"
RESULT_KEPT = "result kept"
CHECKPOINT_SAVED = "checkpoint saved"
LAST_CHECKPOINT_SAVED = "last checkpoint saved"
DONE_NOTED = "done noted"
LAST_REPORT_COUNTED = "last report counted"
TURN_TAKEN = "turn taken"
TURN_REPORTED = "turn reported"
POLICY_RATED = "policy rated"
RESULT_DELIVERED = "result delivered"
CONTENTS_SAVED = "contents saved"

POINTS = (
    REPORT_COUNTED,
    RESULT_KEPT,
    CHECKPOINT_SAVED,
    LAST_CHECKPOINT_SAVED,
    DONE_NOTED,
    LAST_REPORT_COUNTED,
    TURN_TAKEN,
    TURN_REPORTED,
    POLICY_RATED,
    RESULT_DELIVERED,
    CONTENTS_SAVED,
)


def _wanted() -> dict[str, tuple[signal.Signals, pathlib.Path]]:
    """By point, the signal to send and the marker to leave."""
    found = {}
    for variable, number in (
        (DIE_VARIABLE, signal.SIGKILL),
        (STOP_VARIABLE, signal.SIGSTOP),
    ):
        points, _, directory = os.environ.get(variable, "").partition("@")
        for point in filter(None, points.split(",")):
            found[point] = (number, pathlib.Path(directory) / point)
    return found


_signals = _wanted()


def reach(point: str) -> None:
    """Ends or stops the process if that is wanted here, and no process came here before it.

    The marker holds the process's id.
    """
    if not _signals or point not in _signals:
        return
    number, marker = _signals[point]
    try:
        with open(marker, "x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    os.kill(os.getpid(), number)
