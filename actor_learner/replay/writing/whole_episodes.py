"""Holds the steps of an episode back until it has ended, so that all of it can be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.support import errors

FIRST, MID, LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))

Postprocessor = Callable[[trajectory_lib.Trajectory], trajectory_lib.Trajectory]
"""Given an episode of one agent, leaves `[T + 1, ...]`, returns it with other or more fields.

Row T is the boundary step: its observation is the final one, its `policy_info` what the policy said
of it; its action, reward and discount mean nothing. There must be as many rows afterwards."""


class WholeEpisodes:
    """An observer of one lane that hands each episode on when it has ended, and no other steps.

    Args:
      make_observer: Makes the observer that gets the steps, leaves `[1, ...]`, given what returns
        the version of the policy that acted in the latest of them.
      version: Returns the version of the policy that acts.
      postprocessors: Called one after the other with each episode.
    """

    def __init__(
        self,
        make_observer: Callable[[Callable[[], int]], Any],
        version: Callable[[], int] | None = None,
        postprocessors: Sequence[Postprocessor] = (),
    ) -> None:
        self._version = version or (lambda: 0)
        self._sent_version = 0
        self._observer = make_observer(lambda: self._sent_version)
        self._postprocessors = list(postprocessors)
        self._rows: list[tuple[int, trajectory_lib.Trajectory]] = []
        self.also_into = self._observer.also_into
        self.flush = self._observer.flush
        self.close = self._observer.close
        self.abandon = self._observer.abandon

    def __call__(self, row: trajectory_lib.Trajectory) -> None:
        """Takes one step, leaves `[1, ...]`, which are copied.

        Raises:
          errors.ConfigError: If a postprocessor changes the number of rows.
        """
        step_type = int(row.step_type[0])
        if step_type == FIRST:
            self._rows.clear()  # Of an episode that somebody has cut off.
        elif not self._rows:
            return  # The slot is out, or its episode began before anybody looked.
        self._rows.append((self._version(), tree.map_structure(np.array, row)))
        if step_type == LAST:
            self._send()

    def _send(self) -> None:
        versions, rows = zip(*self._rows)
        self._rows.clear()
        episode = tree.map_structure(lambda *leaves: np.concatenate(leaves), *rows)
        # An agent that is out for a while is LAST again; what follows here is its next episode.
        episode.next_step_type[-1] = FIRST
        episode = process(episode, self._postprocessors)
        leaves = tree.flatten(episode)
        for index, self._sent_version in enumerate(versions):
            step = [leaf[index : index + 1] for leaf in leaves]
            self._observer(tree.unflatten_as(episode, step))


def process(
    episode: trajectory_lib.Trajectory, postprocessors: Sequence[Postprocessor]
) -> trajectory_lib.Trajectory:
    """Applies all postprocessors to an episode.

    Raises:
      errors.ConfigError: If one returns something else than as many rows.
    """
    num_rows = len(episode.step_type)
    for postprocessor in postprocessors:
        episode = postprocessor(episode)
        name = getattr(postprocessor, "__name__", repr(postprocessor))
        if not isinstance(episode, trajectory_lib.Trajectory):
            raise errors.ConfigError(
                f"the postprocessor {name} returned a {type(episode).__name__}, not a Trajectory"
            )
        for path, leaf in tree.flatten_with_path(episode):
            if np.shape(leaf)[:1] != (num_rows,):
                raise errors.ConfigError(
                    f"the postprocessor {name} was given an episode of {num_rows} rows, and "
                    f"returned {'/'.join(map(str, path))} of shape {np.shape(leaf)}: each leaf "
                    "must have a row for each"
                )
    return episode


def spec_after(
    data_spec: trajectory_lib.Trajectory, postprocessors: Sequence[Postprocessor]
) -> trajectory_lib.Trajectory:
    """What one step looks like after the postprocessors, found out with an episode of two steps.

    Raises:
      errors.ConfigError: If one of them fails.
    """
    if not postprocessors:
        return data_spec
    example = tree.map_structure(
        lambda spec: np.zeros([3, *spec.shape], spec.dtype.as_numpy_dtype), data_spec
    )
    example = example._replace(
        step_type=np.array([FIRST, MID, LAST], np.int32),
        next_step_type=np.array([MID, LAST, FIRST], np.int32),
        discount=np.ones_like(example.discount),
    )
    try:
        processed = process(example, postprocessors)
    except errors.ConfigError:
        raise
    except Exception as error:
        raise errors.ConfigError(
            f"the postprocessors failed with {type(error).__name__} on an example, an episode of "
            f"two steps with nothing but zeros in it: {error}"
        ) from error
    known = dict(tree.flatten_with_path(data_spec))

    def spec_of(path: tuple[Any, ...], leaf: Any) -> Any:
        found = tf.TensorSpec(np.shape(leaf)[1:], tf.as_dtype(np.asarray(leaf).dtype))
        before = known.get(path)
        same = before is not None and (before.shape, before.dtype) == (found.shape, found.dtype)
        return before if same else found

    return tree.map_structure_with_path(spec_of, processed)
