"""The sample stream of an experiment: which items are written, and how they become batches."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Protocol

import reverb
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Experience:
    """What flows through a sample stream.

    Attributes:
      data_spec: Spec of one step of one lane, the agent's `collect_data_spec`.
      num_lanes: Lanes of the actor that writes.
      n_step: Steps of the return that each transition holds.
      gamma: Discount factor of the return.
    """

    data_spec: Any
    num_lanes: int
    n_step: int
    gamma: float


class SampleStream(Protocol):
    """Builds both ends of the stream, and the table between them.

    ```python
    server = ReplayServer(stream.tables(experience))
    observer = stream.observer(experience, server.client())       # in the actor
    dataset = stream.dataset(experience, server.address, batch_size=64)  # in the learner
    ```
    """

    def tables(self, experience: Experience) -> list[reverb.Table]:
        """The tables the stream needs."""

    def observer(
        self,
        experience: Experience,
        client: reverb.Client,
        version: Callable[[], int] | None = None,
    ) -> Any:
        """The observer that writes items; has `flush()` and `close()`."""

    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        """Batches `(trajectory [batch, 2, ...], info)` for an agent's `train`."""

    def num_transitions(self, experience: Experience, num_items: int) -> int:
        """How many transitions `num_items` items of the stream's table hold."""
