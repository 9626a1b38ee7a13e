"""Table names that carry the run's id, so that another run's tables are never taken for ours."""

from __future__ import annotations

import re

from actor_learner.support import reverb_calls

_MARK = reverb_calls.RUN_MARK
_DIGITS = 8


def of_run(name: str, run_id: str) -> str:
    """Adds the first 8 digits of a run's id: `experience@3f2a91c0`.

    Raises:
      ValueError: If `run_id` is not a hexadecimal id such as `uuid.uuid4().hex`.
    """
    if not re.fullmatch(rf"[0-9a-f]{{{_DIGITS},}}", run_id):
        raise ValueError(
            f"run id {run_id!r} is not made of {_DIGITS} or more hexadecimal digits: its first "
            f"{_DIGITS} must tell runs apart"
        )
    return f"{name}{_MARK}{run_id[:_DIGITS]}"


def carries_run(name: str) -> bool:
    """Whether a run's id is part of the name."""
    return _MARK in name
