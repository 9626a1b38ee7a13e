"""Writes lane-batched items: one Reverb item per batched step, whatever the number of lanes."""

from __future__ import annotations

from typing import Any, Callable

import reverb
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.layouts import rows
from actor_learner.replay.writing import item_observer
from actor_learner.support import configurable


@configurable.register
class LaneObserver(item_observer.ItemObserver):
    """Appends each step of all lanes as one row; each window of rows becomes one item.

    Items hold `[window, lanes, ...]`, overlap by all but one row and share their data, so that an
    observation is stored once. Episode ends inside a window are left to the reader.

    A call blocks only when `max_in_flight_items` items are unconfirmed by the server.

    Args:
      client: Client of the replay server.
      table_name: Table that gets the items; its signature must be `layout.signature()`.
      data_spec: Spec of one step of one lane, usually `agent.collect_data_spec`.
      num_lanes: Lanes per step.
      window: Rows per item: 2 for one-step transitions, n + 1 for n-step ones; 1 for readers that
        put windows together themselves.

    The other arguments are those of `ItemObserver`.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        data_spec: Any,
        num_lanes: int,
        window: int = 2,
        *,
        max_in_flight_items: int = 50,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 60.0,
        version: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            client,
            table_name,
            rows.RowLayout(data_spec, num_lanes, window),
            max_in_flight_items=max_in_flight_items,
            flush_seconds=flush_seconds,
            timeout_seconds=timeout_seconds,
            version=version,
        )
        self._writer = self._open_writer(window, self._layout.columns)

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        self._writer.append(self._layout.row(trajectory, self._version()))
        self._writer.make_room()
