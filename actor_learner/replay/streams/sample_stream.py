"""The sample stream of an experiment: which items are written, and how they become batches."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Callable, NamedTuple

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib


@dataclasses.dataclass(frozen=True)
class Experience:
    """What flows through a sample stream.

    Attributes:
      data_spec: Spec of one step of one lane, the agent's `collect_data_spec`.
      num_lanes: Lanes of the actor that writes.
      n_step: Steps of the return that each transition holds.
      gamma: Discount factor of the return.
      initial_priorities: `Algorithm.initial_priorities`, for streams that sample by priority.
      burn_in: `Algorithm.burn_in`, for streams of sequences.
    """

    data_spec: Any
    num_lanes: int
    n_step: int
    gamma: float
    initial_priorities: Callable[[experience_lib.Sequence], Any] | None = None
    burn_in: int = 0


class PrioritizedRows(NamedTuple):
    """Rows of a batch whose items get new priorities after they were learned from.

    Attributes:
      table_name: The table of these items.
      rows: Which rows of the batch.
      offset: Added to their priorities.
    """

    table_name: str
    rows: slice
    offset: float


class SampleStream(abc.ABC):
    """Builds both ends of the stream, and the table between them.

    ```python
    server = ReplayServer(stream.tables(experience))
    observer = stream.observer(experience, server.client())       # in the actor
    dataset = stream.dataset(experience, server.address, batch_size=64)  # in the learner
    ```

    Attributes:
      kind: Which kind of batches it makes (`experience.TRANSITIONS`, ...); an algorithm learns from
        one kind only.
      weighted: Batches are `({"experience": ..., "weights": [batch]}, SampleInfo)`, keyword
        arguments of `agent.train`, instead of `(experience, info)`.
      priority_offset: Added to all priorities, those of new items and those that the learner sends,
        so that no item's becomes 0 and it is never drawn again.
      repeatable: With the same items written, the same batches come out, given the same seed.
      keeps_items: The learner takes every item out of the table once and draws batches from what it
        has kept, so that the table may run empty.
      table_name: Name of the table that holds the experience, the first of `tables()`.
    """

    kind: str = experience_lib.TRANSITIONS
    weighted: bool = False
    priority_offset: float = 1e-3
    repeatable: bool = False
    keeps_items: bool = False

    @property
    @abc.abstractmethod
    def table_name(self) -> str: ...

    def for_run(self, run_id):
        return self

    def check(self, experience: Experience) -> None:
        """Refuses experience that the stream would lose part of; called when a run is planned.

        Raises:
          errors.ConfigError: Naming the settings that do not go together.
        """
        del experience

    @abc.abstractmethod
    def tables(self, experience: Experience) -> list[reverb.Table]:
        """The tables the stream needs, made anew by each call; `table_name` is the first."""

    @abc.abstractmethod
    def observer(
        self,
        experience: Experience,
        client: reverb.Client,
        version: Callable[[], int] | None = None,
    ) -> Any:
        """The observer that writes items; has `flush()` and `close()`.

        If it has a true attribute `observes_transitions`, it is called with `(time_step,
        policy_step, next_time_step)`, else with a `Trajectory`. Leaves are `[lanes, ...]`.
        """

    @abc.abstractmethod
    def dataset(
        self, experience: Experience, server_address: str, batch_size: int, timeout_seconds: float
    ) -> tf.data.Dataset:
        """Batches of the stream's `kind`, with information about them, for an agent's `train`."""

    @abc.abstractmethod
    def num_transitions(self, experience: Experience, num_items: int) -> int:
        """How many transitions `num_items` items of the stream's table hold."""

    def prioritized(self, batch_size: int) -> list[PrioritizedRows]:
        """Which rows of every batch are items whose priorities the learner updates."""
        if not self.weighted:
            return []
        return [PrioritizedRows(self.table_name, slice(0, batch_size), self.priority_offset)]

    def first_steps(self, experience: Experience) -> int:
        """Environment steps before which nothing can be learned, though the table has items."""
        del experience
        return 0

    def group_steps_per_update(self, experience: Experience, batch_size: int) -> int | None:
        """Batched environment steps that one train step uses up; None if steps are used again.

        Streams that hand every item to the learner once (queues) say how many steps of all lanes
        make a batch, so that collecting and learning can take turns exactly.
        """
        del experience, batch_size
        return None
