"""The acting side of a league: frozen policies that play the other seats of a game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import opponents
from actor_learner.inference import streams
from actor_learner.league import payoff, sampling
from actor_learner.parameters import packing, variables
from actor_learner.support import errors, seeds

_MAX_READY = 8
_GROUPS = 4
"""Groups of lanes that share an opponent: each opponent takes one call."""

_EPISODES_PER_DRAW = 2
"""Episodes per lane of a group that begin with an opponent before another one is drawn."""


class Lineup(NamedTuple):
    """The opponents that the learner plays now, chosen by the keeper of the league.

    Attributes:
      player: Name of the learner: that of the next player to join.
      candidates: The players that may be drawn.
    """

    player: str
    candidates: tuple[sampling.Candidate, ...]


class FrozenPolicies:
    """Plays one policy with the values of any number of versions.

    If TFLite runs the policy, each of the latest versions stays ready in its own interpreter.
    Changing the version of an interpreter takes as long as tens of calls.

    Args:
      policy: Its variables are overwritten: nobody else may use them.
      num_lanes: Maximum observations per call.
      seed: Seed of the policy's random choices.

    Raises:
      errors.ConfigError: If the policy has a memory: it would need one for each lane and version.
    """

    def __init__(self, policy: tf_policy.TFPolicy, num_lanes: int, seed: int) -> None:
        if tf.nest.flatten(policy.policy_state_spec):
            raise errors.ConfigError(
                f"the policy {policy.name!r} has a memory (policy_state_spec is "
                f"{policy.policy_state_spec}), which opponents of a league cannot have: use an "
                "agent without one"
            )
        self._policy = policy
        self._made = 0
        self._packing = packing.Packing(tree.flatten(policy.variables()))
        self._num_lanes = num_lanes
        self._seed = seed
        self._packed: dict[str, np.ndarray] = {}
        # The stream of each version that is ready; the one played last is at the end.
        self._ready: dict[str, Any] = {}
        self._spare = [self._make_stream()]
        # A graph reads the variables themselves, which hold one version at a time.
        self._max_ready = _MAX_READY if streams.kind_of(self._spare[0]) == "lite" else 1
        self._step = ts.TimeStep(
            np.full(num_lanes, ts.StepType.MID, np.int32),
            np.zeros(num_lanes, np.float32),
            np.ones(num_lanes, np.float32),
            tree.map_structure(
                lambda spec: np.zeros([num_lanes, *spec.shape], spec.dtype.as_numpy_dtype),
                policy.time_step_spec.observation,
            ),
        )

    @property
    def names(self) -> list[str]:
        return list(self._packed)

    def add(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        """Adds a version.

        Raises:
          errors.SpecMismatchError: If the values do not fit this policy.
        """
        variables.assign(self._policy, values, source=f"the player {name!r}")
        self._packed[name] = self._packing.pack()
        if name in self._ready or self._max_ready == 1:
            self._forget_ready()

    def keep(self, names: Sequence[str]) -> None:
        """Forgets all other versions."""
        self._packed = {name: self._packed[name] for name in names if name in self._packed}
        for name in list(self._ready):
            if name not in self._packed:
                self._spare.append(self._ready.pop(name))

    def act(self, name: str, observation: Any) -> np.ndarray:
        """Returns a version's moves for observations `[number, ...]`, `num_lanes` at most."""
        stream = self._stream_of(name)

        def put(whole: np.ndarray, part: np.ndarray) -> None:
            whole[: len(part)] = part

        number = len(tree.flatten(observation)[0])
        tree.map_structure(put, self._step.observation, observation)
        return np.asarray(stream.act(self._step).action)[:number]

    def _stream_of(self, name: str) -> Any:
        stream = self._ready.pop(name, None)
        if stream is None:
            if len(self._ready) >= self._max_ready:
                self._spare.append(self._ready.pop(next(iter(self._ready))))
            stream = self._spare.pop() if self._spare else self._make_stream()
            self._packing.assign(self._packed[name])
            stream.refresh()
        self._ready[name] = stream
        return stream

    def _forget_ready(self) -> None:
        self._spare.extend(self._ready.values())
        self._ready = {}

    def _make_stream(self) -> Any:
        self._made += 1
        return streams.stream_for(
            self._policy,
            self._num_lanes,
            True,
            inference=streams.AUTO,
            seed=seeds.of(self._seed, "stream", self._made),
        )


class LeagueOpponents:
    """Draws opponents, plays them, and reports how episodes ended.

    Lanes are in groups. An opponent that is drawn for a group plays the next episodes that begin
    in it, two per lane. Each draw is for as many, so that all episodes together follow the lineup's
    probabilities.

    Between turns `line_up` says whom to draw from. The opponent that began an episode plays it to
    its end. Episodes that begin before the first `line_up`, when an actor is built, are played at
    random and are not counted.

    Args:
      policies: Plays all players but the random one.
      num_lanes: Lanes of the environment.
      seed: Seed of the draws.
      on_result: Called when an episode ends, with player, opponent and record.
    """

    def __init__(
        self,
        policies: FrozenPolicies,
        num_lanes: int,
        seed: int,
        on_result: Callable[[str, str, payoff.Record], None],
    ) -> None:
        self._policies = policies
        self._random = np.random.default_rng(seeds.of(seed, "opponents"))
        self._on_result = on_result
        self._lineup: Lineup | None = None
        # By lane: who plays it, and what the learner was called when that began.
        self._playing = [sampling.RANDOM] * num_lanes
        self._player = [""] * num_lanes  # None yet.
        self._num_groups = min(_GROUPS, num_lanes)
        # By group: who was drawn, and for how many more episodes.
        self._drawn = [(sampling.RANDOM, 0)] * self._num_groups
        self._episodes_per_draw = _EPISODES_PER_DRAW * num_lanes // self._num_groups

    @property
    def lineup(self) -> Lineup | None:
        """The lineup of the last `line_up`; None before."""
        return self._lineup

    def missing(self, lineup: Lineup) -> list[str]:
        """Returns the players of a lineup whose values were not added yet."""
        known = {sampling.RANDOM, *self._policies.names}
        return [each.name for each in lineup.candidates if each.name not in known]

    def add(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        """Adds the values of a player."""
        self._policies.add(name, values)

    def line_up(self, lineup: Lineup) -> None:
        """Draws from these players from now on.

        Raises:
          ValueError: If one of them is `missing`.
        """
        if self.missing(lineup):
            raise ValueError(f"players without values: {self.missing(lineup)}")
        self._lineup = lineup
        self._policies.keep([*(each.name for each in lineup.candidates), *self._playing])

    def begin(self, lanes: np.ndarray) -> None:
        if self._lineup is None:
            return
        for lane in lanes:
            self._playing[lane] = self._draw(lane % self._num_groups)
            self._player[lane] = self._lineup.player

    def _draw(self, group: int) -> str:
        name, left = self._drawn[group]
        if left == 0 or self._is_gone(name):
            (name,) = sampling.draw(self._lineup.candidates, 1, self._random)
            left = self._episodes_per_draw
        self._drawn[group] = (name, left - 1)
        return name

    def _is_gone(self, name: str) -> bool:
        return name != sampling.RANDOM and name not in self._policies.names

    def act(self, lanes: np.ndarray, observation: Any) -> np.ndarray:
        names = [self._playing[lane] for lane in lanes]
        moves = np.zeros(lanes.size, np.int64)
        for name in dict.fromkeys(names):
            rows = np.array([row for row, each in enumerate(names) if each == name])
            seen = tree.map_structure(lambda leaf, rows=rows: leaf[rows], observation)
            if name == sampling.RANDOM:
                moves[rows] = opponents.uniform_player(seen, self._random)
            else:
                moves[rows] = self._policies.act(name, seen)
        return moves

    def end(self, lanes: np.ndarray, returns: np.ndarray) -> None:
        for lane, result in zip(lanes, returns):
            if not self._player[lane]:
                continue
            record = payoff.Record.of(float(result))
            self._on_result(self._player[lane], self._playing[lane], record)
