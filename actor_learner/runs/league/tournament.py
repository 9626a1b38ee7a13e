"""Plays policies of runs, and other players, against one another."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from actor_learner import config, import_path, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.acting import evaluator
from actor_learner.environments import opponents, self_play
from actor_learner.inference import protocol
from actor_learner.league import payoff, sampling
from actor_learner.parameters import variables
from actor_learner.runs.evaluation import environment_specs
from actor_learner.runs.league import league_opponents
from actor_learner.support import errors, seeds


class _PlayerStream:
    """Presents a player as a policy that an evaluator acts with."""

    def __init__(self, player: opponents.Player, seed: int) -> None:
        self._player = player
        self._random = np.random.default_rng(seed)

    def reset(self) -> None:
        pass

    def act(self, time_step: Any) -> protocol.Response:
        return protocol.Response(np.asarray(self._player(time_step.observation, self._random)))


def play(
    game: Callable[[], Any],
    players: Mapping[str, opponents.Player],
    *,
    games: int,
    lanes: int,
    seed: int,
    on_pair: Callable[[str, str], None] = lambda one, other: None,
) -> payoff.PayoffTable:
    """Lets every player play every other, in seats drawn at random.

    Args:
      game: Makes a game.
      players: Players by name.
      games: Games of each pair.
      lanes: Games that are played at the same time.
      seed: Seed of all random choices.
      on_pair: Called before a pair plays.
    """
    table, names = payoff.PayoffTable(), list(players)
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            on_pair(one, other)
            pair_seed = seeds.of(seed, "tournament", one, other)
            env = self_play.SelfPlay(
                game, min(lanes, games), opponent=players[other], seats=None, seed=pair_seed
            )
            try:
                stream = _PlayerStream(players[one], seeds.of(pair_seed, "player"))
                episodes = evaluator.Evaluator(env, stream, games, seed=pair_seed).run()
            finally:
                env.close()
            for result in episodes.returns:
                table.add(one, other, payoff.Record.of(result))
    return table


class Entries:
    """Loads players by the names that a user gives.

    Args:
      lanes: Games that are played at the same time.
      greedy: Whether policies take their most likely move, or draw as they did in training.
      seed: Seed of their random choices.

    Attributes:
      game: Makes the game: that of the first run.
      players: Players by name.
    """

    def __init__(self, lanes: int, *, greedy: bool, seed: int) -> None:
        self._lanes = lanes
        self._greedy = greedy
        self._seed = seed
        self._specs: tuple[Any, Any] | None = None
        self.game: Callable[[], Any] | None = None
        self.players: dict[str, opponents.Player] = {}

    def add(self, entry: str) -> None:
        """Adds `RUN`, `RUN@TAG`, `RUN@VERSION`, `random` or `module:function`.

        Raises:
          errors.ConfigError: If there is no such player, or it plays another game.
        """
        if entry in self.players:
            raise errors.ConfigError(f"{entry} is given twice: a player does not play itself")
        directory = entry if pathlib.Path(entry).is_dir() else entry.rpartition("@")[0]
        if entry == sampling.RANDOM:
            self.players[entry] = opponents.uniform_player
        elif directory and pathlib.Path(directory).is_dir():
            self.players[entry] = self._load(directory, entry)
        elif ":" in entry:
            self.players[entry.rpartition(":")[2]] = _import(entry)
        else:
            raise errors.ConfigError(
                f"{entry} is not a player: give a run directory, RUN@TAG, RUN@VERSION, "
                f"'{sampling.RANDOM}', or 'module:function' of a function that chooses moves"
            )

    def _load(self, directory: str, entry: str) -> opponents.Player:
        run_dir = run_directory.RunDirectory.existing(directory)
        run_dir.require_config()
        import_path.extend(run_dir.read_description().get("import_path", []))
        import_path.extend([os.getcwd()])
        config.load(config.ConfigSource((str(run_dir.config),), ()))
        experiment = experiment_lib.Experiment()
        env = experiment.make_environment(self._seed, num_envs=self._lanes)
        try:
            if not isinstance(env, self_play.SelfPlay):
                raise errors.ConfigError(
                    f"{directory} was trained in {type(env).__name__}, not in a game (SelfPlay): "
                    "it cannot play in a tournament"
                )
            if self._specs is None:
                self._specs = (env.time_step_spec(), env.action_spec())
                self.game = env.game
            environment_specs.require_same(env, *self._specs)
            counts = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2)]
            policy = experiment.make_algorithm(env, *counts).agent.policy
        finally:
            env.close()
        variables.warm_start(policy, entry)
        values = variables.values_of(policy)
        played = experiment_lib.greedy(policy) if self._greedy else policy
        frozen = league_opponents.FrozenPolicies(
            played, self._lanes, seeds.of(self._seed, "policy", entry)
        )
        frozen.add(entry, values)
        return lambda observation, random: frozen.act(entry, observation)


def lines(table: payoff.PayoffTable, ratings: Mapping[str, float], players: Sequence[str]) -> list:
    """Formats the result as aligned text: points, rating, and the record against each player."""
    rows = [["", "games", "points", "Elo", *(f"vs {i}" for i in range(1, len(players) + 1))]]
    for number, name in enumerate(players, 1):
        records = [table.against(name, other) for other in players if other != name]
        games = sum(record.games for record in records)
        points = sum(record.score for record in records) / games
        cells = [
            "-" if other == name else "/".join(map(str, table.against(name, other)))
            for other in players
        ]
        rows.append(
            [f"{number} {name}", str(games), f"{points:.3f}", f"{ratings[name]:.0f}", *cells]
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]


def _import(entry: str) -> opponents.Player:
    import importlib

    module, _, name = entry.rpartition(":")
    import_path.extend([os.getcwd()])
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise errors.ConfigError(f"{entry} cannot be imported: {error}") from error
    if not callable(found):
        raise errors.ConfigError(f"{entry} is not a function that chooses moves")
    return found
