"""Named points at which a process can be made to die, as if by `kill -9`: for tests of faults.

`ACTOR_LEARNER_DIE_AT='report counted@/path/of/a/marker'` ends the process that first gets to that
point, and leaves the marker, so that its successor lives on. Without the variable a point costs a
comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "ACTOR_LEARNER_DIE_AT"

REPORT_COUNTED = "report counted"
RESULT_KEPT = "result kept"
CHECKPOINT_SAVED = "checkpoint saved"
LAST_CHECKPOINT_SAVED = "last checkpoint saved"
DONE_NOTED = "done noted"
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
    TURN_TAKEN,
    TURN_REPORTED,
    POLICY_RATED,
    RESULT_DELIVERED,
    CONTENTS_SAVED,
)

_wanted, _, _marker = os.environ.get(VARIABLE, "").partition("@")


def reach(point: str) -> None:
    """Ends the process if it is to die here, and no other has before it."""
    if point != _wanted:
        return
    try:
        os.close(os.open(_marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
