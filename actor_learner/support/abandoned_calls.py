"""Calls that were given up on but still wait, for a server that is gone, when the process ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading

NAME = "abandoned-reverb-call"
"""Name of the threads in which such calls wait; set by `reverb_calls`, which imports Reverb."""


def end_despite_them(code: int) -> None:
    """Lets the process end with `code` though calls still wait; without them does nothing.

    Their threads would be woken inside Reverb while the interpreter ends, which aborts the process.
    """

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    if any(thread.name == NAME for thread in threading.enumerate()):
        atexit.register(end)
