"""The learner's policy on its way to actors and evaluators, through two Reverb tables.

`variables` holds the latest variables with their version. `announcements` holds a few numbers about
the run, small enough to be renewed many times per second: followers look at these, and pull
variables only when there are newer ones. `publisher.py` is the learner's end, `follower.py` that of
the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from actor_learner.parameters import reverb_variable_container as container_lib

VARIABLES_TABLE = container_lib.DEFAULT_TABLE
ANNOUNCEMENTS_TABLE = "announcements"

MOST_ACTORS = 1_024
"""Actors beyond this number may run a little further ahead of the learner than the others."""

_RUN_ID_BYTES = 32


class Announcement(NamedTuple):
    """What the learner says about the run.

    Attributes:
      run_id: Of the run that the server belongs to; 32 characters.
      train_step: Train steps taken.
      version: The version that can be pulled.
      environment_step: Environment steps that the learner knows of, over all actors.
      steps_allowed: Environment steps by which actors are to wait for the learner.
      counted: By actor, how many of the steps that its process has reported are part of
        `environment_step`. Missing actors have reported none.
      done: Training is complete, and `version` the final one.
      time: When this was said, in seconds since the epoch, by the learner's clock.
    """

    run_id: str
    train_step: int
    version: int
    environment_step: int
    steps_allowed: int
    done: bool
    time: float
    counted: Mapping[int, int]


def publication_tables(variables: Sequence[tf.Variable]) -> list[reverb.Table]:
    """The tables that a server needs for publishing `variables`."""
    return [
        container_lib.variable_table(variables_nest(variables, 0), VARIABLES_TABLE),
        container_lib.variable_table(encode(_NOTHING), ANNOUNCEMENTS_TABLE),
    ]


_NOTHING = Announcement("0" * _RUN_ID_BYTES, 0, -1, 0, 0, False, 0.0, {})


def variables_nest(variables: Sequence[Any], version: int) -> dict[str, Any]:
    """What the table `variables` holds."""
    return {
        container_lib.POLICY_KEY: list(variables),
        container_lib.TRAIN_STEP_KEY: tf.constant(version, tf.int64),
    }


def encode(announcement: Announcement) -> dict[str, tf.Tensor]:
    """What the table `announcements` holds."""
    numbers = [
        announcement.train_step,
        announcement.version,
        announcement.environment_step,
        announcement.steps_allowed,
        int(announcement.done),
    ]
    counted = np.zeros(MOST_ACTORS, np.int64)
    for actor, steps in announcement.counted.items():
        if actor < MOST_ACTORS:
            counted[actor] = steps
    run_id = np.frombuffer(announcement.run_id.encode().ljust(_RUN_ID_BYTES), np.uint8)
    return {
        "counted": tf.constant(counted),
        "numbers": tf.constant(numbers, tf.int64),
        "run_id": tf.constant(run_id[:_RUN_ID_BYTES]),
        "time": tf.constant(announcement.time, tf.float64),
    }


def decode(pulled: dict[str, tf.Tensor]) -> Announcement:
    """The inverse of `encode`."""
    train_step, version, environment_step, steps_allowed, done = pulled["numbers"].numpy().tolist()
    counted = pulled["counted"].numpy()
    return Announcement(
        pulled["run_id"].numpy().tobytes().decode().rstrip(),
        train_step,
        version,
        environment_step,
        steps_allowed,
        bool(done),
        float(pulled["time"].numpy()),
        {actor: int(counted[actor]) for actor in np.flatnonzero(counted).tolist()},
    )
