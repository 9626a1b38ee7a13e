"""A league of separate jobs, with real processes: any of them may die, and it stays what it was."""

import json
import os
import random

import numpy as np
import pytest

from actor_learner.jobs.workers import game_journal
from actor_learner.league import elo, payoff
from actor_learner.parameters import store
from actor_learner.reporting import jsonl
from actor_learner.runs.league import league_keeper
from tests.jobs import fault_run
from tests.launch import processes

LANES, ACTORS = 16, 2
BINDINGS = (
    "Experiment.environment_steps = 60_000",
    "SelfPlay.num_envs = 16",
    "League.interval = 1_500",
    "Evaluation.interval = 4_000",
    "Evaluation.episodes = 5",
    # Long, so that a killed learner has forgotten much that it must be told again.
    "Learner.checkpoint_interval = 1_000",
    "Checkpoints.seconds = 600.0",
)


class League:
    """A look at the league of a run from outside."""

    def __init__(self, run_dir):
        self._run_dir = run_dir
        self._store = store.ParameterStore(run_dir.path / store.DIRECTORY)
        self._seen = {}  # What each player was when it was first heard of.

    def read(self):
        return json.loads((self._run_dir.path / league_keeper.FILE).read_text())

    def num_members(self):
        try:
            return len(self.read()["members"])
        except FileNotFoundError:
            return 0

    def check_members(self):
        """No player that was ever heard of is another one by now, or gone."""
        found = {member["name"]: member for member in self.read()["members"]}
        assert list(found) == [f"league-{number}" for number in range(len(found))]
        for name, member in found.items():
            self._seen.setdefault(name, (member, self._store.get("policy", name).values))
        for name, (member, values) in self._seen.items():
            assert found[name] == member
            now = self._store.get("policy", name).values
            assert all(np.array_equal(values[key], now[key]) for key in values | now)

    def table(self):
        return payoff.PayoffTable.from_rows([list(row.values()) for row in self.read()["payoff"]])

    def played(self):
        """All games, as the actors themselves have written them down, and their processes."""
        table, num_processes = payoff.PayoffTable(), 0
        for index in range(ACTORS):
            directory = self._run_dir.path / "jobs" / f"actor-{index}"
            for each in game_journal.GameJournal(directory, "the test").earlier.values():
                num_processes += 1
                for pair, record in each.records.items():
                    table.add(*pair, record)
        return table, num_processes


@pytest.fixture
def run(tmp_path):
    made = fault_run.Run(tmp_path, "ppo_tic_tac_toe", BINDINGS, actors=ACTORS)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_league_is_what_it_was_whichever_job_is_killed(run):
    seed = int(os.environ.get("FAULT_SEED", random.randrange(2**32)))
    print("to repeat the moments: FAULT_SEED =", seed)
    chance, league = random.Random(seed), League(run.run_dir)
    done = 2_000
    for kind in chance.sample(["actor", "learner", "replay", "learner", "actor"], 5):
        moment = done + chance.randrange(500, 4_000)
        run.wait(lambda m=moment: run.environment_steps() >= m, f"step {moment}")
        run.wait(lambda: league.num_members() > 1, "a player has joined")
        league.check_members()
        known = league.table()
        run.kill(kind)
        league.check_members()
        # The first report of each actor has told a new learner what it had forgotten.
        members = league.num_members()
        run.wait(lambda m=members: league.num_members() > m, "another player has joined")
        now = league.table()
        for pair, record in known.records.items():
            assert now.record(*pair).games >= record.games
        done = run.environment_steps()

    run.process.wait(fault_run.DEADLINE)
    assert run.process.returncode == 0, run.text()
    league.check_members()
    played, num_processes = league.played()
    table = league.table()
    # Every game counts once, whoever died when.
    assert table.records == played.records
    rounded = {name: round(value, 1) for name, value in elo.ratings(table, "league-0").items()}
    assert league.read()["ratings"] == rounded
    # Only what was begun before there was a league is not counted; and a step that was being taken
    # when its process was killed may count here and not there.
    episodes = jsonl.read_rows(run.run_dir.metrics_jsonl)[-1]["episodes"]
    assert 0 <= episodes + num_processes * LANES - table.games
    assert episodes - table.games <= num_processes * LANES
    assert (run.run_dir.path / league_keeper.PICTURE).exists()
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))
