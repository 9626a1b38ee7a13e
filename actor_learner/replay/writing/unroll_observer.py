"""Writes unrolls of all lanes: one Reverb item per T steps of a group, the moment they are done."""

from __future__ import annotations

from typing import Callable

import numpy as np
import reverb
import tree
from tf_agents.trajectories import policy_step as policy_step_lib
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import rows, unroll_layout
from actor_learner.replay.server import signatures, state
from actor_learner.support import configurable, errors, reverb_calls

Transition = tuple[ts.TimeStep, policy_step_lib.PolicyStep, ts.TimeStep]


@configurable.register
class UnrollObserver:
    """Gathers T steps of all lanes and writes them, and the observation after, as one item.

    The item is written as soon as step T is observed: the observation to bootstrap from is that of
    `next_time_step`, so that no further action has to be chosen for it. Rows follow one another
    without gaps, boundary steps (LAST to FIRST) included; row T of one unroll is row 0 of the next.

    A call blocks only where it completes an unroll and more than `max_in_flight_items` of this
    observer are unconfirmed, that is, while the queue is full.

    Args:
      client: Client of the replay server.
      table_name: Queue that gets the items; its signature must be `layout.signature()`.
      data_spec: `Trajectory` spec of one step of one lane, the agent's `collect_data_spec`.
      num_lanes: Lanes per step.
      unroll_length: T, steps per unroll.
      max_in_flight_items: Items that may be unconfirmed before a call waits.
      timeout_seconds: How long a call may wait for the learner to make room.
      version: Returns the train step of the policy that acts; items carry that of their first row.
    """

    observes_transitions = True

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        data_spec: trajectory_lib.Trajectory,
        num_lanes: int,
        unroll_length: int,
        *,
        max_in_flight_items: int = 1,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        self._client = client
        self._table_name = table_name
        self._layout = unroll_layout.UnrollLayout(data_spec, num_lanes, unroll_length)
        self._max_in_flight_items = max_in_flight_items
        self._timeout_seconds = timeout_seconds
        self._version = version or (lambda: 0)
        self._columns, self._views = self._layout.buffers()
        is_bootstrap = [
            field.path == "step_type" or field.path.split("/")[0] == "observation"
            for field in self._layout.step.fields
        ]
        self._bootstrap_views = [view for view, of in zip(self._views, is_bootstrap) if of]
        self._once: dict[str, np.ndarray] = {}  # Columns of the current unroll's first row.
        self._row = 0
        self._next_step_type: np.ndarray | None = None
        self._writer: reverb.TrajectoryWriter | None = None
        self._checked = False
        self._items_written = 0
        self._check_table()

    @property
    def layout(self) -> unroll_layout.UnrollLayout:
        return self._layout

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
        time_step, policy_step, next_time_step = transition
        policy_info = policy_step.info
        step = trajectory_lib.Trajectory(
            time_step.step_type,
            time_step.observation,
            policy_step.action,
            self._layout.info_without_state(policy_info),
            next_time_step.step_type,
            next_time_step.reward,
            next_time_step.discount,
        )
        bootstrap = (next_time_step.step_type, next_time_step.observation)
        if self._layout.num_lanes == 1 and np.ndim(time_step.step_type) == 0:
            step, bootstrap, policy_info = tree.map_structure(
                lambda leaf: np.asarray(leaf)[None], (step, bootstrap, policy_info)
            )
        if not self._checked:
            self._layout.step.check(step, self._table_name)
            self._layout.check_state(policy_info, self._table_name)
            self._checked = True
        if self._row and not self._follows(step.step_type):
            self.reset()
        if self._row == 0:
            self._once = self._layout.state_columns(policy_info)
            self._once[rows.VERSION] = np.int64(self._version())
        for view, leaf in zip(self._views, tree.flatten(step)):
            view[:, self._row] = leaf
        self._row += 1
        self._next_step_type = bootstrap[0]
        if self._row == self._layout.unroll_length:
            for view, leaf in zip(self._bootstrap_views, tree.flatten(bootstrap)):
                view[:, self._row] = leaf
            self._write()

    def flush(self) -> None:
        """Waits until the server has taken every complete unroll into the queue.

        Raises:
          errors.ReplayTimeoutError: If that takes longer than `timeout_seconds`.
        """
        self._flush(0)

    def reset(self) -> None:
        """Drops the steps of an unfinished unroll; the next step begins another."""
        self._row = 0
        self._next_step_type = None

    def close(self) -> None:
        """Gives the writer up at once; safe to call twice.

        Items that the server has not taken yet are given up, since at the end of a run nobody may
        be left to make room for them. Call `flush` before where they matter.
        """
        self.reset()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _follows(self, step_type: np.ndarray) -> bool:
        """Whether the step is the one that the last led to; not if somebody reset the lanes."""
        expected = self._next_step_type
        return step_type is expected or np.array_equal(step_type, expected)

    def _write(self) -> None:
        self._row = 0
        self._next_step_type = None
        if self._writer is None:
            self._writer = self._client.trajectory_writer(num_keep_alive_refs=1)
        # Reverb copies the arrays: the buffers are free again.
        self._writer.append({**self._columns, **self._once})
        history = self._writer.history
        self._writer.create_item(
            self._table_name, 1.0, {name: column[-1] for name, column in history.items()}
        )
        self._items_written += 1
        self._flush(self._max_in_flight_items)

    def _flush(self, remaining: int) -> None:
        if self._writer is None:
            return
        try:
            reverb_calls.wait_in_slices(
                lambda timeout_ms: self._writer.flush(remaining, timeout_ms), self._timeout_seconds
            )
        except reverb.errors.ReverbError as error:
            table = state.table_state(self._client, self._table_name, timeout_seconds=5.0)
            raise errors.ReplayTimeoutError(
                f"an actor has waited {self._timeout_seconds:g} s for room for its unrolls: "
                f"{table.describe()}. The learner takes them out: it is not running, or needs "
                "longer than that for the unrolls that the queue holds"
            ) from error

    def _check_table(self) -> None:
        """Refuses a table that is made for other data, before a single row is written."""
        info = reverb_calls.fetch_table(self._client, self._table_name, self._timeout_seconds)
        expected = self._layout.signature()
        if info.signature is None:
            raise errors.SpecMismatchError(
                f"table '{self._table_name}' has no signature; make it with signature="
                "UnrollLayout(data_spec, num_lanes, unroll_length).signature()"
            )
        # The names hold the layout's digest: equal shapes may still be other fields.
        if info.signature != expected:
            differences = signatures.describe_mismatch(info.signature, expected) or [
                "the same bytes, but of other fields"
            ]
            raise errors.SpecMismatchError(
                f"table '{self._table_name}' holds other data than this actor writes: the run's "
                "environment, agent, lanes or unroll_length differ from the actor's.\n  "
                + "\n  ".join(differences)
            )
