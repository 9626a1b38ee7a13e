"""A league in one process: players join, are played, are counted, and come back after a resume."""

import json

import gin
import numpy as np
import pytest

from actor_learner import cli, config, experiment, run_directory
from actor_learner.league import elo, payoff
from actor_learner.learning import kuhn_exploitability
from actor_learner.parameters import store
from actor_learner.runs import one_process
from actor_learner.runs.league import league_keeper

BINDINGS = (
    "SelfPlay.num_envs = 8",
    "League.interval = 300",
    "UnrollQueue.unroll_length = 8",
    "ppo.minibatch_size = 32",
    "ppo.epochs = 1",
    "ppo.fc_layer_params = (8,)",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 4",
    "Learner.checkpoint_interval = 0",
)


@pytest.fixture
def train(tmp_path):
    def run(leaf, steps, *bindings):
        source = config.ConfigSource(
            (leaf,), (*BINDINGS, f"Experiment.environment_steps = {steps}", *bindings)
        )
        config.check(source)
        config.load(source)
        directory = run_directory.RunDirectory(tmp_path / "run")
        rows = []
        with one_process.OneProcess(
            experiment.Experiment(), directory, seed=1, on_row=rows.append
        ) as training:
            config.check_all_used()
            training.run()
        return training, rows, tmp_path / "run"

    yield run
    gin.clear_config()


def read(directory):
    content = json.loads((directory / league_keeper.FILE).read_text())
    return content, payoff.PayoffTable.from_rows([list(row.values()) for row in content["payoff"]])


@pytest.mark.parametrize("overlap", [False, True])
def test_players_join_are_played_and_come_back(train, overlap):
    more = (f"Experiment.overlap = {overlap}", "League.opponents = {'uniform': 1, 'random': 1}")
    training, rows, directory = train("ppo_tic_tac_toe", 1_000, *more)
    content, table = read(directory)
    names = [member["name"] for member in content["members"]]
    assert names == [f"league-{number}" for number in range(len(names))] and len(names) >= 4
    steps = [member["environment_steps"] for member in content["members"]]
    assert all(later - sooner >= 300 for sooner, later in zip(steps, steps[1:-1]))
    assert content["members"][-1]["version"] == training.train_step
    # All episodes count but those that were begun before there was a league, one per lane.
    assert table.games == rows[-1]["episodes"] - 8
    assert {opponent for _, opponent in table.records} <= {*names, "random"}
    assert {player for player, _ in table.records} <= {*names, f"league-{len(names)}"}
    assert "random" in table.players and "league-1" in table.players
    for (player, opponent), _ in table.records.items():  # Nobody plays what joined after it.
        assert opponent == "random" or int(opponent[7:]) < int(player[7:])
    ratings = elo.ratings(table, "league-0")
    assert content["ratings"] == {name: round(value, 1) for name, value in ratings.items()}
    held = store.ParameterStore(directory / store.DIRECTORY)
    assert set(held.tags("policy")) == set(names)
    (second,) = held.list("policy", where="player == 'league-1'")
    assert second.metadata["games"] > 0 and 0 <= second.metadata["win_rate"] <= 1

    before = {name: held.get("policy", name).values for name in names}
    train("ppo_tic_tac_toe", 1_600, *more)
    again, grown = read(directory)
    assert again["members"][: len(names)] == content["members"]
    assert len(again["members"]) > len(names)
    for pair, record in table.records.items():
        assert grown.record(*pair).games >= record.games
    for name, values in before.items():
        now = held.get("policy", name).values
        assert all(np.array_equal(values[key], now[key]) for key in values)


def test_tournament_prints_who_beats_whom(train, capsys):
    _, _, directory = train("ppo_tic_tac_toe", 400)
    description = run_directory.RunDirectory(directory)
    (directory / "config.gin").write_text(
        "include 'ppo_tic_tac_toe.gin'\n" + "\n".join(BINDINGS) + "\n"
    )
    (directory / "run.json").write_text(json.dumps({"seed": 1}))
    assert description.config.exists()
    gin.clear_config()
    optimal = "actor_learner.environments.games.tic_tac_toe:optimal_tic_tac_toe"
    arguments = [str(directory), f"{directory}@league-0", "random", optimal, "--games=30"]
    picture = directory / "tournament.png"
    assert cli.main(["tournament", *arguments, f"--picture={picture}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:5]] == [
        str(directory), f"{directory}@league-0", "random", "optimal_tic_tac_toe",
    ]  # fmt: skip
    assert picture.exists()
    against = [tuple(map(int, cell.split("/"))) for cell in lines[4].split()[5:8]]
    assert all(sum(counts) == 30 and counts[2] == 0 for counts in against)  # It never loses.
    assert float(lines[4].split()[3]) > 0.7
    assert cli.main(["tournament", str(directory), "nobody"]) == 2
    assert "nobody is not a player" in capsys.readouterr().err
    assert cli.main(["tournament", str(directory)]) == 2


def test_exploitability_of_kuhn_poker_is_written(train):
    training, _, directory = train("ppo_kuhn_poker", 800, "KuhnExploitability.interval = 100")
    path = directory / kuhn_exploitability.FILE
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) >= 5
    assert all(0.0 < row["exploitability"] < 1.0 and 0.0 < row["average"] < 1.0 for row in rows)
    strategy = kuhn_exploitability.strategy_of(training._algorithm.agent.policy)
    assert all(0.0 < probability < 1.0 for probability in strategy.values())
    train("ppo_kuhn_poker", 1_200, "KuhnExploitability.interval = 100")
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert again[: len(rows)] == rows and len(again) > len(rows)
