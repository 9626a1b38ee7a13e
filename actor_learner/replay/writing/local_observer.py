"""Puts unrolls of all lanes into a queue of this process."""

from __future__ import annotations

from typing import Any, Callable, Protocol

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience
from actor_learner.replay import local_queue
from actor_learner.replay.layouts import codec, unroll_layout
from actor_learner.replay.writing import unroll_observer, unroll_rows


class UnrollSource(Protocol):
    """Whoever takes whole unrolls in one graph call, and hands out their steps one by one."""

    length: int

    def begins_with(self, action: Any) -> bool:
        """Whether this action is that of the first step of the latest unroll: the same object."""

    def ends_with(self, time_step: Any) -> bool:
        """Whether its last step led to this time step: the same object."""

    def tensors(self) -> experience.UnrollTensors:
        """The latest unroll."""


class LocalUnrollObserver:
    """Makes the unrolls that an `UnrollObserver` would make, without writing them anywhere.

    Where all steps of an unroll come from one call of a `source`, its tensors go to the learner as
    they are, by one graph call that puts lanes first; the steps themselves are only counted. Other
    steps are gathered row by row.

    Args:
      queue: Gets the unrolls.
      timeout_seconds: How long a call that completes an unroll may wait for room.
      version: Returns the train step of the policy that acts; unrolls carry that of their first
        row.
    """

    observes_transitions = True

    def __init__(
        self,
        queue: local_queue.LocalQueue,
        *,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        self._queue = queue
        self._layout = queue.layout
        self._timeout_seconds = timeout_seconds
        self._version = version or (lambda: 0)
        self._rows = unroll_rows.UnrollRows(queue.layout)
        self._source: UnrollSource | None = None
        self._seen = 0  # Steps of the source's unroll; 0 while rows are gathered.
        self._first_version = 0
        self._checked = False
        self._lanes_first = tf.function(
            lambda tensors: lanes_first(self._layout, tensors), autograph=False
        )
        self._items_written = 0

    @property
    def items_written(self) -> int:
        """Unrolls of all lanes put into the queue so far."""
        return self._items_written

    def take_whole_unrolls_of(self, source: UnrollSource | None) -> None:
        """Takes tensors of `source` where all steps of an unroll are of one call of it."""
        fits = source is not None and source.length == self._layout.unroll_length
        self._source = source if fits else None

    def __call__(self, transition: unroll_observer.Transition) -> None:
        """Adds one step, leaves `[lanes, ...]`, or without lanes if there is only one.

        Raises:
          errors.SpecMismatchError: If the first one does not look as the spec says.
          errors.ReplayTimeoutError: If the queue stays full for `timeout_seconds`; the unroll is
            lost then.
        """
        _, policy_step, next_time_step = transition
        source = self._source
        if source is not None and source.begins_with(policy_step.action):
            self._check(transition)
            self._rows.reset()
            self._seen, self._first_version = 0, self._version()
        elif not self._seen:
            self._gather(transition)
            return
        self._seen += 1
        if self._seen < self._layout.unroll_length:
            return
        self._seen = 0
        if source is not None and source.ends_with(next_time_step):
            self._put(self._lanes_first(source.tensors()), self._first_version)

    def reset(self) -> None:
        """Drops the steps of an unfinished unroll; the next step begins another."""
        self._seen = 0
        self._rows.reset()

    def flush(self) -> None:
        """Nothing is under way: calls return when their unroll is in the queue."""

    def close(self) -> None:
        """Drops the steps of an unfinished unroll."""
        self.reset()

    abandon = close

    def _gather(self, transition: unroll_observer.Transition) -> None:
        trajectory, bootstrap = self._check(transition)
        columns = self._rows.add(trajectory, bootstrap, self._version())
        if columns is not None:
            version = int(columns.pop(codec.VERSION))
            # TensorFlow may keep the array that it is given, and the next row changes it.
            cell = {name: tf.constant(column.copy())[None] for name, column in columns.items()}
            self._put(self._layout.unpack(cell), version)

    def _check(
        self, transition: unroll_observer.Transition
    ) -> tuple[trajectory_lib.Trajectory, Any]:
        trajectory, bootstrap = unroll_observer.step_of(transition)
        if self._layout.num_lanes == 1 and np.ndim(trajectory.step_type) == 0:
            trajectory, bootstrap = tree.map_structure(
                lambda leaf: np.asarray(leaf)[None], (trajectory, bootstrap)
            )
        if not self._checked:
            self._layout.check(trajectory, self._queue.name)
            self._checked = True
        return trajectory, bootstrap

    def _put(self, unroll: experience.Unroll, version: int) -> None:
        self._queue.put(unroll, version, self._timeout_seconds)
        self._items_written += 1


def lanes_first(
    layout: unroll_layout.UnrollLayout, tensors: experience.UnrollTensors
) -> experience.Unroll:
    """The unroll `[lanes, T + 1, ...]` of what a graph has made, `[T, lanes, ...]`."""

    def then_last(leaf: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        return tf.concat([leaf, last[tf.newaxis]], axis=0)

    def then_zeros(nest: Any) -> Any:
        return tf.nest.map_structure(lambda leaf: then_last(leaf, tf.zeros_like(leaf[0])), nest)

    steps = tf.nest.map_structure(then_last, tensors.time_step, tensors.last)
    trajectory = trajectory_lib.Trajectory(
        step_type=steps.step_type,
        observation=steps.observation,
        action=then_zeros(tensors.action),
        policy_info=then_zeros(tensors.policy_info),
        next_step_type=then_zeros(steps.step_type[1:]),
        reward=then_zeros(steps.reward[1:]),
        discount=then_zeros(steps.discount[1:]),
    )
    trajectory, state = codec.split_state(trajectory)
    spec = layout.unroll_spec()
    unroll = experience.Unroll(
        tf.nest.map_structure(
            lambda leaf: tf.transpose(leaf, [1, 0, *range(2, leaf.shape.rank)]), trajectory
        ),
        tf.nest.map_structure(lambda leaf: leaf[0], state),
    )
    # Named tuples of the spec, whichever mappings the policy uses.
    return tf.nest.pack_sequence_as(spec, tf.nest.flatten(unroll))
