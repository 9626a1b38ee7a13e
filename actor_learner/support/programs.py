"""Where this environment's programs are, for commands that a user is told to type."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys


def directory() -> str:
    """Directory of the programs, with a final slash; empty if the shell finds them by itself."""
    place = pathlib.Path(sys.executable).parent
    found = shutil.which("actor-learner")
    if found is not None and pathlib.Path(found).parent == place:
        return ""
    if not (place / "actor-learner").exists():
        return ""
    shown = os.path.relpath(place)
    return f"{place if shown.startswith('..') else shown}/"
