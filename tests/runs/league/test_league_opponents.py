"""Frozen policies play as they were stored, each in its own lanes, and results are told."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner.agents import ppo, r2d2
from actor_learner.environments import self_play
from actor_learner.environments.games import tic_tac_toe
from actor_learner.inference import streams
from actor_learner.league import payoff, sampling
from actor_learner.parameters import variables
from actor_learner.runs.league import league_opponents, league_side
from actor_learner.support import errors

LANES = 8


def make_policy(agent=ppo.ppo):
    make = functools.partial(self_play.SelfPlay, tic_tac_toe.TicTacToe, LANES)
    experiment = experiment_lib.Experiment(make, agent)
    counts = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    return experiment.make_algorithm(make(), *counts).agent.policy


def preferring(policy, cell):
    """Values of the policy that moves to a cell wherever it is free, with near certainty."""
    values = variables.values_of(policy)
    (last,) = [name for name, value in values.items() if value.shape == (9,)]
    changed = {name: np.zeros_like(value) for name, value in values.items()}
    changed[last] = np.where(np.arange(9) == cell, 50.0, 0.0).astype(np.float32)
    return changed


def empty_boards(number):
    return {
        "observation": np.zeros([number, 18], np.float32),
        "action_mask": np.ones([number, 9], np.int8),
    }


@pytest.mark.parametrize("kind", ["lite", "graph"])
def test_each_version_plays_as_it_was_stored(kind, monkeypatch):
    if kind == "graph":
        monkeypatch.setattr(streams, "AUTO", streams.GRAPH)
    policy = make_policy()
    frozen = league_opponents.FrozenPolicies(policy, LANES, seed=1)
    number = league_opponents._MAX_READY
    for cell in range(number):
        frozen.add(f"p{cell}", preferring(policy, cell))
    # More versions than are ready at once, by turns and again.
    frozen.add("last", preferring(policy, 8))
    for _ in range(2):
        for cell in range(number):
            assert frozen.act(f"p{cell}", empty_boards(3)).tolist() == [cell] * 3
        assert frozen.act("last", empty_boards(LANES)).tolist() == [8] * LANES
    frozen.add("p0", preferring(policy, 5))  # The same name with other values.
    assert frozen.act("p0", empty_boards(1)).tolist() == [5]
    assert frozen.act("p1", empty_boards(1)).tolist() == [1]
    frozen.keep(["p1"])
    assert frozen.names == ["p1"]
    assert frozen.act("p1", empty_boards(2)).tolist() == [1, 1]


def test_opponents_are_drawn_by_their_probabilities_and_results_are_theirs():
    policy = make_policy()
    frozen = league_opponents.FrozenPolicies(policy, LANES, seed=1)
    told = []
    others = league_opponents.LeagueOpponents(frozen, LANES, 3, lambda *result: told.append(result))
    everywhere = np.arange(LANES)
    others.begin(everywhere)  # As an actor does when it is built.
    others.end(everywhere, np.ones(LANES))
    assert told == []
    lineup = league_opponents.Lineup(
        "league-2", (sampling.Candidate("league-0", 0.25), sampling.Candidate("league-1", 0.75))
    )
    assert others.missing(lineup) == ["league-0", "league-1"]
    with pytest.raises(ValueError, match="without values"):
        others.line_up(lineup)
    others.add("league-0", preferring(policy, 3))
    others.add("league-1", preferring(policy, 6))
    others.line_up(lineup)
    for _ in range(1_000):
        others.begin(everywhere)
        moves = others.act(everywhere, empty_boards(LANES))
        others.end(everywhere, (moves == 3).astype(float))
    games = payoff.PayoffTable()
    for player, opponent, record in told:
        games.add(player, opponent, record)
    # Who is said to have played made the moves; and a draw lasts for two episodes per lane.
    assert set(games.records) == {("league-2", "league-0"), ("league-2", "league-1")}
    assert games.record("league-2", "league-0").draws == 0
    assert games.record("league-2", "league-1").wins == 0
    assert games.games == 1_000 * LANES
    assert games.record("league-2", "league-0").games == pytest.approx(2_000, abs=250)


def test_policies_with_memory_are_refused():
    with pytest.raises(errors.ConfigError, match="has a memory"):
        league_opponents.FrozenPolicies(make_policy(r2d2.r2d2), LANES, seed=1)


def test_only_games_without_an_opponent_need_a_league():
    env = self_play.SelfPlay(tic_tac_toe.TicTacToe, 2)
    assert league_side.has_league(env)
    fixed = self_play.SelfPlay(tic_tac_toe.TicTacToe, 2, opponent=tic_tac_toe.optimal_tic_tac_toe)
    assert not league_side.has_league(fixed)
