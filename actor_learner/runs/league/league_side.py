"""Puts a league into a run whose environment is `SelfPlay`."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import run_directory
from actor_learner.environments import self_play
from actor_learner.league import payoff, settings
from actor_learner.learning import learner as learner_lib
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs.league import league_keeper, league_opponents
from actor_learner.support import errors, seeds


def has_league(env: Any) -> bool:
    """Returns whether an environment needs opponents from a league."""
    return isinstance(env, self_play.SelfPlay) and env.needs_league


def make_opponents(
    experiment: experiment_lib.Experiment,
    env: self_play.SelfPlay,
    *,
    seed: int,
    on_result: Callable[[str, str, payoff.Record], None],
) -> league_opponents.LeagueOpponents:
    """Installs opponents in an environment, with their own copy of the policy.

    They act as the agent's policy does: a stochastic one draws its moves.
    """
    counts = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2)]
    frozen = league_opponents.FrozenPolicies(
        experiment.make_algorithm(env, *counts).agent.policy,
        env.batch_size,
        seeds.of(seed, "opponents' policies"),
    )
    others = league_opponents.LeagueOpponents(frozen, env.batch_size, seed, on_result)
    env.play_against(others)
    return others


class OneProcessLeague:
    """A league whose learner and actor are in one process.

    Args:
      keeper: The keeper of the league.
      others: The opponents that play in the environment.
    """

    def __init__(
        self, keeper: league_keeper.LeagueKeeper, others: league_opponents.LeagueOpponents
    ) -> None:
        self.keeper = keeper
        self._others = others

    def start(self, learner: learner_lib.Learner) -> None:
        """Begins the league, once the learner has restored its checkpoint."""
        self.keeper.start(learner.save_checkpoint)
        learner.add_trigger(lambda step: self.keeper.join_if_due(learner.save_checkpoint))

    def line_up(self) -> None:
        """Gives the opponents the current lineup; call this before each turn."""
        lineup = self.keeper.lineup()
        if lineup is not self._others.lineup:
            for name in self._others.missing(lineup):
                self._others.add(name, self.keeper.values(name))
            self._others.line_up(lineup)


def in_one_process(
    experiment: experiment_lib.Experiment,
    env: Any,
    run: run_directory.RunDirectory,
    policy: Any,
    *,
    train_step: tf.Variable,
    environment_step: tf.Variable,
    epoch: epoch_lib.Epoch,
    seed: int,
) -> OneProcessLeague | None:
    """Builds the league of a run in one process; returns None if its environment needs none.

    Args:
      experiment: The experiment that is trained.
      env: The environment to collect in; its opponents will be the league's.
      run: The run directory.
      policy: The policy that is trained.
      train_step: Counts train steps.
      environment_step: Counts environment steps.
      epoch: Epoch of this process.
      seed: Seed of the opponents' draws.

    Raises:
      errors.ConfigError: If `Devices.actors` is set: a league has one actor in a process.
    """
    if not has_league(env):
        return None
    if experiment.devices.actors:
        raise errors.ConfigError(
            "Devices.actors is set, but a league has one actor in a process: leave it out, or use "
            "separate jobs (`actor-learner up`)"
        )
    keeper = league_keeper.LeagueKeeper(
        settings.League(),
        run,
        policy,
        train_step=train_step,
        environment_step=environment_step,
        epoch=epoch,
    )
    others = make_opponents(experiment, env, seed=seed, on_result=keeper.count)
    return OneProcessLeague(keeper, others)
