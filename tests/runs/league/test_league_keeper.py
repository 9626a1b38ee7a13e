"""The keeper of a league: what it announces is saved before, and what it is told counts once."""

import functools

import pytest
import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner import run_directory
from actor_learner.agents import ppo
from actor_learner.environments import self_play
from actor_learner.environments.games import kuhn_poker
from actor_learner.league import payoff, settings
from actor_learner.parameters import store
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs.league import league_keeper


@pytest.fixture(scope="module")
def policy():
    make = functools.partial(self_play.SelfPlay, kuhn_poker.KuhnPoker, 2)
    experiment = experiment_lib.Experiment(make, ppo.ppo)
    counts = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    return experiment.make_algorithm(make(), *counts).agent.policy


class Learner:
    """A run with a keeper; `save` keeps what a checkpoint would."""

    def __init__(self, directory, policy, saved=None, **league):
        run = run_directory.RunDirectory(directory)
        run.path.mkdir(exist_ok=True)
        self.train_step = tf.Variable(0, dtype=tf.int64)
        self.environment_step = tf.Variable(0, dtype=tf.int64)
        self.keeper = league_keeper.LeagueKeeper(
            settings.League(interval=100, **league),
            run,
            policy,
            train_step=self.train_step,
            environment_step=self.environment_step,
            epoch=epoch_lib.Epoch.begin(run),
        )
        self.saved, self.is_full, self.at_save = saved, False, []
        if saved is not None:
            self.keeper.deserialize(saved)

    def save(self):
        if self.is_full:
            return None
        self.saved = self.keeper.serialize()
        self.at_save.append(self.keeper._lineup)
        return "saved"

    def go_on(self, steps):
        self.environment_step.assign_add(steps)
        self.train_step.assign_add(1)
        return self.keeper.join_if_due(self.save)

    @property
    def opponents(self):
        return [each.name for each in self.keeper.lineup().candidates]


def test_players_join_in_time_and_are_lined_up(tmp_path, policy):
    learner = Learner(tmp_path / "run", policy)
    learner.keeper.start(learner.save)
    assert learner.opponents == ["league-0"] and learner.keeper.player == "league-1"
    assert not learner.go_on(99)
    assert learner.go_on(1)
    assert learner.opponents == ["league-1", "league-0"]
    assert [member[1:] for member in learner.keeper.members] == [(0, 0), (2, 100)]
    assert learner.keeper.join_at_the_end(learner.save) is False  # It has just joined.


def test_nobody_hears_of_a_player_that_is_not_saved(tmp_path, policy):
    learner = Learner(tmp_path / "run", policy)
    learner.keeper.start(learner.save)
    learner.is_full = True
    assert not learner.go_on(100)
    assert learner.opponents == ["league-0"] and learner.keeper.player == "league-1"
    learner.is_full = False
    assert learner.go_on(0)
    assert learner.opponents == ["league-1", "league-0"]


def test_resumed_learner_has_all_players_and_counts_what_it_is_told_again(tmp_path, policy):
    learner = Learner(tmp_path / "run", policy)
    learner.keeper.start(learner.save)
    learner.keeper.take("0", "process", [["league-1", "league-0", 3, 1, 0]])
    learner.go_on(100)
    learner.keeper.take("0", "process", [["league-1", "league-0", 5, 1, 0]])  # After the save.
    ratings, table = learner.keeper.ratings(), learner.keeper.table.records
    successor = Learner(tmp_path / "run", policy, learner.saved)
    successor.keeper.start(successor.save)
    assert successor.keeper.members == learner.keeper.members
    assert successor.keeper.table.record("league-1", "league-0") == (3, 1, 0)
    successor.keeper.take("0", "process", [["league-1", "league-0", 5, 1, 0]])
    assert successor.keeper.table.records == table and successor.keeper.ratings() == ratings


def test_player_that_joined_without_a_checkpoint_is_another_one_later(tmp_path, policy):
    learner = Learner(tmp_path / "run", policy)
    learner.keeper.start(learner.save)
    before = learner.saved
    learner.go_on(100)  # It dies before the checkpoint is complete:
    successor = Learner(tmp_path / "run", policy, before)
    assert [member.name for member in successor.keeper.members] == ["league-0"]
    successor.train_step.assign(7)
    assert successor.go_on(150)
    held = store.ParameterStore(tmp_path / "run" / store.DIRECTORY)
    assert held.tags("policy") == {"league-0": 0, "league-1": 8}


def test_win_rates_and_tags_decide_who_is_played(tmp_path, policy):
    mixture = {"prioritized": 1.0, "tag:rival": 1.0}
    learner = Learner(tmp_path / "run", policy, opponents=mixture)
    learner.keeper.start(learner.save)
    learner.go_on(100)
    for _ in range(600):  # League-0 is beaten always; enough games for another lineup.
        learner.keeper.count("league-2", "league-0", payoff.Record(1, 0, 0))
    held = store.ParameterStore(tmp_path / "run" / store.DIRECTORY)
    held.tag("policy", 1, "rival")
    chances = {each.name: each.probability for each in learner.keeper.lineup().candidates}
    assert chances["rival@1"] == pytest.approx(0.5)
    assert chances["league-1"] > 0.49 and chances["league-0"] < 0.001
    assert learner.keeper.values("rival@1").keys() == learner.keeper.values("league-1").keys()


def test_stored_players_say_how_they_did(tmp_path, policy):
    learner = Learner(tmp_path / "run", policy)
    learner.keeper.start(learner.save)
    learner.keeper.count("league-1", "league-0", payoff.Record(3, 0, 1))
    learner.go_on(100)
    held = store.ParameterStore(tmp_path / "run" / store.DIRECTORY)
    (found,) = held.list("policy", where="win_rate > 0.6 and 'league-1' in tags")
    assert (found.metadata["games"], found.metadata["win_rate"]) == (4, 0.75)
    assert found.metadata["elo"] > 1000.0
