"""Writes unrolls of all lanes: one Reverb item per T steps of a group, the moment they are done."""

from __future__ import annotations

from typing import Any, Callable

import reverb
from tf_agents.trajectories import policy_step as policy_step_lib
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import unroll_layout
from actor_learner.replay.writing import item_observer, unroll_rows
from actor_learner.support import configurable

Transition = tuple[ts.TimeStep, policy_step_lib.PolicyStep, ts.TimeStep]


@configurable.register
class UnrollObserver(item_observer.ItemObserver):
    """Gathers T steps of all lanes and writes them, and the observation after, as one item.

    The item is written as soon as step T is observed: the observation to bootstrap from is that of
    `next_time_step`, so that no further action has to be chosen for it. Rows follow one another
    without gaps, boundary steps (LAST to FIRST) included; row T of one unroll is row 0 of the next.

    A call blocks only where it completes an unroll and more than `max_in_flight_items` of this
    observer are unconfirmed, that is, while the queue is full.

    Args:
      client: Client of the replay server.
      table_name: Queue that gets the items.
      layout: Layout of the items, the reader's.
      max_in_flight_items: Items that may be unconfirmed before a call waits.
      timeout_seconds: How long a call may wait for the learner to make room.
      version: Returns the train step of the policy that acts; items carry that of their first row.
    """

    observes_transitions = True

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        layout: unroll_layout.UnrollLayout,
        *,
        max_in_flight_items: int = 1,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            client,
            table_name,
            layout,
            max_in_flight_items=max_in_flight_items,
            flush_seconds=float("inf"),  # Every item is pushed as it is written.
            timeout_seconds=timeout_seconds,
            version=version,
        )
        self._writer = self._open_writer(window=1)
        self._rows = unroll_rows.UnrollRows(layout)
        self._bootstrap: Any = ()  # (step type, observation) that the last step led to.
        self._items_written = 0

    @property
    def items_written(self) -> int:
        """Unrolls of all lanes written so far, confirmed or not."""
        return self._items_written

    def __call__(self, transition: Transition) -> None:
        """Adds one step, leaves `[lanes, ...]`, or without lanes if there is only one.

        Raises:
          errors.ReplayTimeoutError: If the queue stays full for `timeout_seconds`. The unroll is
            not lost: it is still on its way.
        """
        trajectory, self._bootstrap = step_of(transition)
        super().__call__(trajectory)

    def reset(self) -> None:
        """Drops the steps of an unfinished unroll; the next step begins another."""
        self._rows.reset()

    def close(self) -> None:
        """Releases the connection at once; safe to call twice.

        Items that the server has not taken yet are given up, since at the end of a run nobody may
        be left to make room for them. Call `flush` first where they matter.
        """
        self.reset()
        self._writer.abandon()

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Puts one step of all lanes into the unroll, and writes it once it is complete."""
        columns = self._rows.add(trajectory, self._bootstrap, self._version())
        if columns is None:
            return
        # Reverb copies the arrays: the buffers are free again.
        self._writer.append(columns)
        written = self._writer.columns
        self._writer.create_item({name: column[-1] for name, column in written.items()}, 1.0)
        self._items_written += 1
        self._writer.flush(self._max_in_flight_items)


def step_of(transition: Transition) -> tuple[trajectory_lib.Trajectory, Any]:
    """The step as a `Trajectory`, and the step type and observation that it led to."""
    next_time_step = transition[2]
    return trajectory_lib.from_transition(*transition), (
        next_time_step.step_type,
        next_time_step.observation,
    )
