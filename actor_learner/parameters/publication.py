"""The learner's policy on its way to actors and evaluators, through two Reverb tables.

`variables` holds the latest variables, their version and what the learner says about the run.
`announcements` holds only the latter, for when there are no new variables: small enough to be
renewed many times per second. Followers look which of them has changed, and read that. Both hold
one array of bytes each: an `Announcement`, and in `variables` what `packing.py` makes after it.
`publisher.py` is the learner's end, `follower.py` that of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from actor_learner.parameters import latest_bytes, packing
from actor_learner.parameters import reverb_variable_container as container_lib

VARIABLES_TABLE = container_lib.DEFAULT_TABLE
ANNOUNCEMENTS_TABLE = "announcements"

MOST_ACTORS = 1_024
"""Actors beyond this number may run a little further ahead of the learner than the others."""

_RUN_ID_BYTES = 32
_RECORD = np.dtype(
    [
        ("run_id", f"S{_RUN_ID_BYTES}"),
        ("time", "<f8"),
        ("numbers", "<i8", 5),
        # Columns of Reverb have one shape; zeros compress well.
        ("counted", "<i8", MOST_ACTORS),
    ]
)

ANNOUNCEMENT_BYTES = _RECORD.itemsize


class Announcement(NamedTuple):
    """What the learner says about the run.

    Attributes:
      run_id: Of the run that the server belongs to; 32 characters.
      train_step: Train steps taken.
      version: The version that can be pulled; in `variables`, that of these variables.
      environment_step: Environment steps that the learner knows of, over all actors.
      steps_allowed: Environment steps by which actors are to wait for the learner.
      counted: By actor, how many of the steps that its process has reported are part of
        `environment_step`. Missing actors have reported none.
      done: Training is complete, and `version` the final one.
      time: When this was said, in seconds since the epoch, by the learner's clock. 0 beside
        variables that were published before anything was said: only run and version hold then.
    """

    run_id: str
    train_step: int
    version: int
    environment_step: int
    steps_allowed: int
    done: bool
    time: float
    counted: Mapping[int, int]


def pack_variables(variables: Sequence[tf.Variable]) -> packing.Packing:
    """How `variables` stand in their table, after an announcement."""
    return packing.Packing(variables, ANNOUNCEMENT_BYTES)


def table_sizes(packed: packing.Packing) -> dict[str, int]:
    """The bytes that each table holds."""
    return {VARIABLES_TABLE: packed.size, ANNOUNCEMENTS_TABLE: ANNOUNCEMENT_BYTES}


def publication_tables(variables: Sequence[tf.Variable]) -> list[reverb.Table]:
    """The tables that a server needs for publishing `variables`."""
    sizes = table_sizes(pack_variables(variables))
    return [latest_bytes.bytes_table(name, size) for name, size in sizes.items()]


def encode(announcement: Announcement) -> np.ndarray:
    """An announcement as bytes, `[ANNOUNCEMENT_BYTES]`."""
    record = np.zeros(1, _RECORD)
    record["run_id"] = announcement.run_id.encode()
    record["time"] = announcement.time
    record["numbers"] = (
        announcement.train_step,
        announcement.version,
        announcement.environment_step,
        announcement.steps_allowed,
        announcement.done,
    )
    counted = record["counted"][0]
    for actor, steps in announcement.counted.items():
        if actor < MOST_ACTORS:
            counted[actor] = steps
    return record.view(np.uint8)


def decode(content: np.ndarray) -> Announcement:
    """The announcement that what a table holds begins with."""
    record = content[:ANNOUNCEMENT_BYTES].view(_RECORD)[0]
    train_step, version, environment_step, steps_allowed, done = record["numbers"].tolist()
    counted = record["counted"]
    actors = np.flatnonzero(counted)
    return Announcement(
        record["run_id"].decode(),
        train_step,
        version,
        environment_step,
        steps_allowed,
        bool(done),
        float(record["time"]),
        dict(zip(actors.tolist(), counted[actors].tolist())),
    )
