"""One row for each episode that has ended: its return and length, for whoever rates policies."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay.writing import item_observer
from actor_learner.support import errors, reverb_calls

FIRST, LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)

_DTYPES = {
    "lane": tf.int32,  # Of the actor's group; of a world's policy, the agent's slot.
    "return": tf.float32,  # Sum of all rewards.
    "length": tf.int32,  # In steps.
    "terminated": tf.bool,  # Else truncated.
    "version": tf.int64,  # Train step of the policy that took the last step.
}


class RowLayout:
    """What a row looks like.

    Args:
      num_lanes: Lanes per step.
    """

    def __init__(self, num_lanes: int) -> None:
        self.num_lanes = num_lanes

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of a table of rows."""
        return {name: tf.TensorSpec([], dtype, name) for name, dtype in _DTYPES.items()}

    def check(self, trajectory: Any, table: str) -> None:
        """Every step has what is needed."""


class EpisodeRows(item_observer.ItemObserver):
    """An observer that writes a row whenever a lane's episode has ended.

    Args:
      client: Client of the replay server.
      table_name: A table that `make_table` has made.
      num_lanes: Lanes per step.
      version: Returns the train step of the policy that acts.
    """

    def __init__(
        self,
        client: reverb.Client,
        table_name: str,
        num_lanes: int,
        version: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            client,
            table_name,
            RowLayout(num_lanes),
            max_in_flight_items=50,
            flush_seconds=1.0,
            timeout_seconds=60.0,
            version=version,
        )
        self._writer = self._open_writer(window=1)
        self._returns = np.zeros(num_lanes, np.float64)
        self._lengths = np.zeros(num_lanes, np.int64)

    def reset(self) -> None:
        """Confirms what was written; episodes that have not ended are forgotten."""
        self._returns[:] = 0
        self._lengths[:] = 0
        super().reset()

    def _add(self, trajectory: trajectory_lib.Trajectory) -> None:
        begins = trajectory.step_type == FIRST
        self._returns[begins] = 0
        self._lengths[begins] = 0
        steps = trajectory.step_type != LAST
        self._returns += np.where(steps, trajectory.reward, 0.0)
        self._lengths += steps
        for lane in np.flatnonzero(steps & (trajectory.next_step_type == LAST)):
            values = {
                "lane": lane,
                "return": self._returns[lane],
                "length": self._lengths[lane],
                "terminated": trajectory.discount[lane] == 0,
                "version": self._version(),
            }
            self._writer.append(
                {name: _DTYPES[name].as_numpy_dtype(value) for name, value in values.items()}
            )
            columns = self._writer.columns
            self._writer.create_item({name: columns[name][-1] for name in columns}, 1.0)
        self._writer.make_room()


def make_table(name: str, size: int) -> reverb.Table:
    """The table of the latest `size` rows, each of which is read once, in their order."""
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=size,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=RowLayout(1).signature(),
    )


def read_episodes(
    client: reverb.Client, table_name: str, timeout_seconds: float = 30.0
) -> list[dict[str, Any]]:
    """Takes the rows out of the table that are there, the oldest first; waits for no more.

    Only one reader at a time gets what it asks for.

    Args:
      client: Client of the replay server.
      table_name: Name of the table, with the run's id.
      timeout_seconds: How long the server may take.

    Returns:
      Of each episode `lane`, `return`, `length`, `terminated` and `version`.

    Raises:
      errors.ReplayTimeoutError: If the server does not answer in time.
      errors.ReplayError: If it has no such table.
    """
    tables = reverb_calls.fetch_tables(client, timeout_seconds)
    if table_name not in tables:
        raise errors.ReplayError(
            f"the replay server at {client.server_address} has no table {table_name!r}, but "
            f"{sorted(tables)}: is send_concise_info set?"
        )
    size = tables[table_name].current_size
    if not size:
        return []
    samples = reverb_calls.call_with_deadline(
        lambda: list(
            client.sample(table_name, size, emit_timesteps=False, unpack_as_table_signature=True)
        ),
        timeout_seconds,
        lambda: reverb_calls.no_answer(client.server_address, timeout_seconds),
    )
    return [{name: np.ravel(sample.data[name])[0].item() for name in _DTYPES} for sample in samples]
