"""The sample stream of an experiment: which items are written, and how they become batches."""

from __future__ import annotations

import abc
import copy
import dataclasses
from typing import Any, Callable, NamedTuple, Optional, TypeVar

import reverb
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner.replay.server import shares, tables
from actor_learner.support import errors

TABLE = "experience"
"""Name of a stream's table unless it is given another."""

Version = Optional[Callable[[], int]]
"""Returns the train step of the policy that acts, which items carry; None is 0."""

Stream = TypeVar("Stream", bound="SampleStream")


@dataclasses.dataclass(frozen=True)
class Experience:
    """What flows through a sample stream.

    Attributes:
      data_spec: Spec of one step of one lane, the agent's `collect_data_spec`.
      num_lanes: Lanes of a group of the actor that writes: those that a step has.
      n_step: Steps of the return that each transition holds.
      gamma: Discount factor of the return.
      initial_priorities: `Algorithm.initial_priorities`, for streams that sample by priority.
      burn_in: `Algorithm.burn_in`, for streams of sequences.
      num_groups: Groups of the actor, each of which writes items of its own, by an observer of its
        own.
    """

    data_spec: Any
    num_lanes: int
    n_step: int
    gamma: float
    initial_priorities: Callable[[experience_lib.Sequence], Any] | None = None
    burn_in: int = 0
    num_groups: int = 1


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
    dataset = stream.dataset(  # in the learner
        experience, server.address, batch_size=64, timeout_seconds=60.0
    )
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
      collects: Whether actors write to it.
      spreads: Whether several replay servers can hold its table together, a share each:
        `dataset` then takes their addresses (`shards.Shards`), `observer` a list of clients.
    """

    kind: str = experience_lib.TRANSITIONS
    weighted: bool = False
    priority_offset: float = 1e-3
    repeatable: bool = False
    keeps_items: bool = False
    collects: bool = True
    spreads: bool = False

    def __init__(self, table_name: str = TABLE) -> None:
        """Names the table.

        Args:
          table_name: Of the table that holds the experience; streams that share a server need
            different ones.

        Raises:
          errors.ConfigError: If a table cannot be called so.
        """
        if not isinstance(table_name, str) or not table_name or tables.carries_run(table_name):
            raise errors.ConfigError(
                f"{type(self).__name__}.table_name is {table_name!r}; it must be a text that is "
                "not empty, without '@', behind which a run writes its id"
            )
        self._name = table_name
        self._run_id = ""

    @property
    def table_name(self) -> str:
        """Name of the table that holds the experience, the first of `tables()`."""
        return tables.of_run(self._name, self._run_id) if self._run_id else self._name

    def for_run(self: Stream, run_id: str) -> Stream:
        """A copy of this stream whose tables all carry the run's id in their names.

        Both ends of the copy then refuse the server of another run that has taken the port of
        ours. Make it before tables, observer or dataset.

        Args:
          run_id: Hexadecimal, as of `uuid.uuid4().hex`; the first 8 digits become part of names.
        """
        bound = copy.copy(self)
        bound._bind(run_id)
        if not tables.carries_run(bound.table_name):
            raise TypeError(
                f"{type(self).__name__} names its table by itself, so that the name cannot carry "
                "the run's id: pass it to SampleStream.__init__ instead"
            )
        return bound

    def _bind(self, run_id: str) -> None:
        """Sets the run; streams made of others pass it on to copies of them."""
        self._run_id = run_id

    def for_policy(self: Stream, policy: str, turn_ticks: int) -> Stream:
        """A copy for one of several policies of a world, whose name its table carries.

        Args:
          policy: Name of the policy.
          turn_ticks: Batched steps that actors take before the learner is asked: as much must
            find room in a queue.
        """
        del turn_ticks
        own = copy.copy(self)
        own._name = f"{policy}-{self._name}"
        return own

    def with_table(self: Stream, table_name: str) -> Stream:
        """A copy that writes to, or reads, a table of another name."""
        own = copy.copy(self)
        own._name = table_name
        return own

    def with_window(self: Stream, burn_in: int, sample: int, bootstrap: int) -> Stream:
        """A copy whose items are so many consecutive steps of a lane, `sample` steps apart.

        Args:
          burn_in: Steps at the start that only lead up to what is learned.
          sample: Steps that are learned from.
          bootstrap: Steps at the end whose values these are compared with.

        Raises:
          errors.ConfigError: If its items have a length of their own.
        """
        raise errors.ConfigError(
            f"sample_steps is set, but the items of {type(self).__name__} have lengths of their "
            "own: a transition holds as many steps as the agent's n_step, such as dqn.n_step. Set "
            "that instead, or use @SequenceReplay() or @UnrollQueue() with an agent for them"
        )

    def with_whole_episodes(self: Stream, padded: bool) -> Stream:
        """A copy whose items are whole episodes, `padded` to one length where they are written.

        Raises:
          errors.ConfigError: If its items are something else.
        """
        raise errors.ConfigError(
            f"send_full_trajectory is set, but the items of {type(self).__name__} are not "
            "stretches of an episode's steps: send_after_done sends nothing but whole episodes in "
            "whatever items; or use @SequenceReplay() with an agent for it, such as @r2d2"
        )

    def with_lanes_apart(self: Stream, num_lanes: int) -> Stream:
        """This stream, for actors whose lanes write one by one (`Apart`); by default as it is."""
        del num_lanes
        return self

    def for_learners(self: Stream, num_learners: int, experience: Experience) -> Stream:
        """A copy whose dataset gives one of several learners its part of every batch.

        Asked of streams that use every step once; others are told by `batch_size`. The dataset must
        take nothing out of the table before it is asked for.

        Args:
          num_learners: How many learners take parts, all equally large.
          experience: What flows through the stream.

        Raises:
          errors.ConfigError: If the stream's batches cannot be shared so.
        """
        raise errors.ConfigError(
            f"--learners={num_learners}: {type(self).__name__} hands out every item once, and has "
            "no for_learners() that would share a batch: use one learner, and several replicas of "
            "Learner.strategy in it"
        )

    def check(self, experience: Experience) -> None:
        """Refuses experience that the stream would lose part of; called when a run is planned.

        Raises:
          errors.ConfigError: Naming the settings that do not go together.
        """
        del experience

    @abc.abstractmethod
    def tables(self, experience: Experience) -> list[reverb.Table]:
        """The tables the stream needs, new ones in each call; `table_name` is the first."""

    def tables_of_share(self, experience: Experience, num_servers: int) -> list[reverb.Table]:
        """The tables of one of several servers that hold the experience together.

        Raises:
          errors.ConfigError: If the stream is not made for that.
        """
        if not self.spreads:
            raise errors.ConfigError(
                f"{type(self).__name__} cannot be spread over {num_servers} replay servers "
                "(--replays): use one; or @LaneReplay(), @PrioritizedReplay(), @SequenceReplay() "
                "or @UnrollQueue()"
            )
        least = self.items_of_each_share(experience)
        return [shares.share_of(table, num_servers, least) for table in self.tables(experience)]

    def items_of_each_share(self, experience: Experience) -> int:
        """How many items every share of the table must have room for."""
        del experience
        return 1

    @abc.abstractmethod
    def observer(
        self, experience: Experience, client: reverb.Client, version: Version = None
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
        of a group make a batch, so that collecting and learning can take turns exactly. All groups
        take as many of them.
        """
        del experience, batch_size
        return None

    def _check_counts(self, **settings: float | None) -> None:
        """Refuses settings that are not whole numbers above 0; None is not looked at.

        Raises:
          errors.ConfigError: Naming the setting.
        """
        for name, value in settings.items():
            if value is not None and (value != int(value) or value < 1):
                raise errors.ConfigError(
                    f"{type(self).__name__}.{name} must be a whole number, 1 or more, got {value!r}"
                )

    def _refuse_negative(self, **settings: float) -> None:
        """Refuses settings below 0, naming them like `_check_counts`."""
        for name, value in settings.items():
            if value < 0:
                raise errors.ConfigError(
                    f"{type(self).__name__}.{name} must be 0 or more, got {value}"
                )

    def _refuse_name(self, table: Any) -> None:
        """Refuses a name where a builder of tables is wanted."""
        if isinstance(table, str):
            stream = type(self).__name__
            raise errors.ConfigError(
                f"{stream}.table is {table!r}, but must be a function that builds the table, such "
                f"as @uniform_table; the name is set with {stream}.table_name"
            )
