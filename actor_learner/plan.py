"""What an experiment comes to, for one algorithm and a number of lanes: streams and ratios."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import reverb

from actor_learner.replay.streams import sample_stream
from actor_learner.replay.writing import episode_rows
from actor_learner.support import errors

TURNS_AHEAD = 2
"""Turns that each actor may be ahead of the learner."""

_EPISODE_ROWS = 10_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of an experiment, with everything that depends on the algorithm decided.

    Attributes:
      stream: How experience reaches the learner.
      experience: What flows through it.
      batch_size: Transitions or sequences per train step; unroll streams have their own.
      initial_random_steps: Environment steps taken at random at the start.
      learn_from: Environment step at which learning begins.
      updates_per_step: Train steps per environment step from there.
      group_steps: Batched steps of one turn of the actor, those of all its groups together, which
        make exactly one train step: for streams that use every step once. None for replay.
      collect_steps: Environment steps of one turn of the actor, for replay.
      publish_seconds: Least seconds between two publications of the policy to other jobs.
      copies: Names of further tables that every item goes to, for others than the learner.
      copy_size: Items that each of them keeps; None is as many as the stream's own table.
      episode_table: Name of the table that gets a row for each episode; None for none.
    """

    stream: sample_stream.SampleStream
    experience: sample_stream.Experience
    batch_size: int
    initial_random_steps: int
    learn_from: int
    updates_per_step: float
    group_steps: int | None
    collect_steps: int
    publish_seconds: float = 0.5
    copies: tuple[str, ...] = ()
    copy_size: int | None = None
    episode_table: str | None = None

    def tables(self) -> list[reverb.Table]:
        """The stream's tables, and the further ones; new ones in each call."""
        found = self.stream.tables(self.experience)
        own = found[0].info
        episodes = []
        if self.episode_table is not None:
            episodes.append(episode_rows.make_table(self.episode_table, _EPISODE_ROWS))
        return [*found, *episodes] + [
            reverb.Table(
                name=name,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=self.copy_size or own.max_size,
                rate_limiter=reverb.rate_limiters.MinSize(1),  # Writing never waits for readers.
                signature=own.signature,
            )
            for name in self.copies
        ]

    def observer(self, client: reverb.Client, version: sample_stream.Version = None) -> Any:
        """An observer that writes the stream's items to all its tables.

        Raises:
          errors.ConfigError: If it is one of the user's own, which cannot write to several.
        """
        observer = self.stream.observer(self.experience, client, version=version)
        if self.copies:
            if not hasattr(observer, "also_into"):
                observer.close()
                raise errors.ConfigError(
                    f"tables names {len(self.copies) + 1} tables, but {type(observer).__name__}, "
                    f"the observer of {type(self.stream).__name__}, writes to one: give it a "
                    "method also_into(names), or name one table"
                )
            observer.also_into(self.copies)
        return observer

    def episode_observer(
        self, client: reverb.Client, version: sample_stream.Version = None
    ) -> episode_rows.EpisodeRows | None:
        """An observer that writes a row for each episode of a group; None if none are wanted."""
        if self.episode_table is None:
            return None
        return episode_rows.EpisodeRows(client, self.episode_table, self.lanes_per_group, version)

    @property
    def num_lanes(self) -> int:
        """Lanes of each actor, in all its groups."""
        return self.experience.num_lanes * self.experience.num_groups

    @property
    def lanes_per_group(self) -> int:
        """Lanes that an actor steps by one call."""
        return self.experience.num_lanes

    @property
    def num_groups(self) -> int:
        """Groups that an actor rotates through."""
        return self.experience.num_groups

    def describe_lanes(self) -> str:
        """Says how many lanes an actor has, and in how many groups."""
        if self.num_groups == 1:
            return f"{self.num_lanes} lanes"
        return f"{self.num_lanes} lanes in {self.num_groups} groups of {self.lanes_per_group}"

    @property
    def steps_per_turn(self) -> int:
        """Environment steps of one turn of the actor, boundary steps included.

        All lanes of a group step together, so that a turn is a whole number of their steps.
        """
        lanes = self.lanes_per_group
        if self.group_steps is not None:
            return self.group_steps * lanes
        return math.ceil(self.collect_steps / lanes) * lanes

    def steps_ahead(self, num_actors: int = 1) -> int:
        """Environment steps that actors may be ahead of the learner, over all of them, for replay.

        That is `TURNS_AHEAD` turns of each; but where train steps are so rare that none need fall
        due within these, as far as the next one and a turn of each. Actors that stopped earlier
        would wait for the learner, and the learner for them.
        """
        turns = self.steps_per_turn * num_actors
        until_next_update = math.ceil(1.0 / self.updates_per_step) + 1  # 1: steps are rounded.
        return max(TURNS_AHEAD * turns, until_next_update + turns)

    def pace(self, environment_step: int, train_step: int, replay_is_empty: bool) -> Pace:
        """How updates follow environment steps from these counters on.

        Args:
          environment_step: Environment steps taken when this process began.
          train_step: Train steps taken by then.
          replay_is_empty: Learning then waits for as many steps as at the start: the first few
            transitions of a resumed run alone would spoil its policy.
        """
        wait = self.learn_from if replay_is_empty else 0
        learn_from = max(environment_step + wait, self.learn_from)
        return Pace(learn_from, train_step, self.updates_per_step)


@dataclasses.dataclass(frozen=True)
class Pace:
    """The ratio of train steps to environment steps, counted from where a process began.

    Attributes:
      learn_from: Environment step at which learning begins, or goes on.
      train_step: Train steps taken by then.
      updates_per_step: Train steps per environment step from there.
    """

    learn_from: int
    train_step: int
    updates_per_step: float

    def updates_due(self, environment_step: int) -> int:
        """Train steps that should have been taken by `environment_step`."""
        steps = max(0, environment_step - self.learn_from)
        return self.train_step + int(steps * self.updates_per_step)

    def steps_until(self, train_step: int) -> int:
        """Environment steps by which no more than `train_step` train steps are due."""
        return self.learn_from + int((train_step - self.train_step) / self.updates_per_step)
