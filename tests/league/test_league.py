"""The parts of a league that are only arithmetic."""

import collections
import json

import numpy as np
import pytest

from actor_learner.league import elo, payoff, picture, reported_payoff, sampling, settings
from actor_learner.support import errors


def table_of(*rows):
    return payoff.PayoffTable.from_rows(rows)


def test_payoff_table_sees_games_from_both_sides():
    table = table_of(["b", "a", 3, 1, 0])
    table.add("a", "b", [2, 0, 0])
    assert table.against("b", "a") == payoff.Record(3, 1, 2)
    assert table.against("a", "b") == payoff.Record(2, 1, 3)
    assert table.total("b") == payoff.Record(3, 1, 0)
    assert table.games == 6
    again = payoff.PayoffTable.from_rows(json.loads(json.dumps(table.rows())))
    assert again.records == table.records


@pytest.mark.parametrize("result, record", [(2.0, (1, 0, 0)), (0.0, (0, 1, 0)), (-1.0, (0, 0, 1))])
def test_sign_of_the_return_is_the_result(result, record):
    assert payoff.Record.of(result) == record


def test_reports_count_once_however_often_they_come_and_whoever_dies():
    kept = reported_payoff.ReportedPayoff()
    assert kept.take("0", "one", [["b", "a", 1, 0, 0]]) == 1
    saved = json.loads(json.dumps(kept.state()))
    assert kept.take("0", "one", [["b", "a", 3, 0, 1]]) == 3
    assert kept.take("0", "one", [["b", "a", 3, 0, 1]]) == 0  # Repeated.
    assert kept.take("0", "one", [["b", "a", 2, 0, 1]]) == 0  # Overtaken by a later one.
    before = kept.table.records
    kept.restore(saved)  # The learner dies; the actor dies, too, and its successor reports both.
    assert kept.take("0", "one", [["b", "a", 3, 0, 1]]) == 3
    assert kept.table.records == before
    assert kept.take("0", "two", [["b", "a", 1, 0, 0], ["b", "c", 0, 1, 0]]) == 2
    assert kept.table.against("b", "a") == (4, 0, 1)
    assert kept.take("1", "one", [["b", "a", 1, 0, 0]]) == 1  # Another actor's.


def test_forgotten_processes_leave_their_games():
    kept = reported_payoff.ReportedPayoff()
    for process in range(50):
        kept.take("0", str(process), [["b", "a", 1, 0, 0]])
    assert kept.table.games == 50
    assert len(kept.state()["processes"]["0"]) == 16


def test_elo_recovers_the_strengths_that_made_the_results():
    strength = {"a": 1000.0, "b": 1150.0, "c": 1300.0, "d": 900.0}
    table = payoff.PayoffTable()
    for one in strength:
        for other in strength:
            if one < other:
                wins = round(100_000 * elo.expected_score(strength[one], strength[other]))
                table.add(one, other, [wins, 0, 100_000 - wins])
    found = elo.ratings(table)
    assert found == pytest.approx(strength, abs=0.5)
    assert elo.standings(found) == ["c", "b", "a", "d"]


def test_elo_of_who_never_lost_is_finite_and_of_who_only_drew_is_equal():
    found = elo.ratings(table_of(["b", "a", 50, 0, 0], ["c", "a", 0, 50, 0]), "a")
    assert found["a"] == pytest.approx(1000.0)
    assert found["c"] == pytest.approx(1000.0)
    assert 1000.0 + 400 < found["b"] < 3000.0


def test_elo_takes_players_who_never_met():
    found = elo.ratings(table_of(["b", "a", 3, 0, 1], ["d", "c", 1, 0, 3]), "a")
    assert found["b"] > found["a"] == 1000.0
    assert found["c"] + found["d"] == pytest.approx(2000.0)
    assert elo.ratings(payoff.PayoffTable()) == {}


def probabilities(mixture, **more):
    arguments = {"win_rates": {}, "tagged": {}, "power": 2.0, **more}
    past = arguments.pop("past", ["p0", "p1", "p2"])
    return {each.name: each.probability for each in sampling.candidates(mixture, past, **arguments)}


def test_each_kind_of_opponent_has_its_share():
    assert probabilities({"latest": 1.0}) == {"p2": 1.0}
    assert probabilities({"uniform": 3.0}) == pytest.approx(
        dict.fromkeys(["p0", "p1", "p2"], 1 / 3)
    )
    assert probabilities({"latest": 1.0, "random": 3.0}) == {"p2": 0.25, "random": 0.75}
    hard = probabilities({"prioritized": 1.0}, win_rates={"p0": 1.0, "p1": 0.5, "p2": 0.0})
    assert hard == pytest.approx({"p1": 0.2, "p2": 0.8})
    unmet = probabilities({"prioritized": 1.0}, win_rates={"p0": 0.5})
    assert unmet == pytest.approx(dict.fromkeys(["p0", "p1", "p2"], 1 / 3))
    beaten = probabilities({"prioritized": 1.0}, win_rates=dict.fromkeys(["p0", "p1", "p2"], 1.0))
    assert beaten == pytest.approx(dict.fromkeys(["p0", "p1", "p2"], 1 / 3))


def test_tags_are_played_once_they_exist():
    mixture = {"tag:best": 1.0, "random": 1.0}
    assert probabilities(mixture, tagged={"best": "best@7"}) == {"best@7": 0.5, "random": 0.5}
    assert probabilities(mixture) == {"random": 1.0}
    assert probabilities({"tag:best": 1.0}) == {"p2": 1.0}


def test_draws_follow_the_probabilities_and_the_seed():
    players = sampling.candidates({"latest": 3, "random": 1}, ["p"], {}, {}, power=1.0)
    drawn = sampling.draw(players, 4_000, np.random.default_rng(3))
    assert drawn == sampling.draw(players, 4_000, np.random.default_rng(3))
    assert collections.Counter(drawn)["p"] == pytest.approx(3_000, abs=120)


def test_long_past_is_thinned_evenly():
    past = [str(number) for number in range(101)]
    assert sampling.thinned(past, 5) == ["0", "25", "50", "75", "100"]
    assert sampling.thinned(past, 1) == ["100"]
    assert sampling.thinned(past[:3], 5) == ["0", "1", "2"]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"opponents": {"lates": 1}}, "'lates'"),
        ({"opponents": {}}, "dictionary"),
        ({"opponents": {"latest": -1}}, "at least 0"),
        ({"opponents": {"latest": 0}}, "all weights are 0"),
        ({"opponents": {"tag:": 1}}, "tag:"),
        ({"interval": 0}, "League.interval"),
        ({"max_players": 0}, "League.max_players"),
        ({"power": -1}, "League.power"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(errors.ConfigError, match=message):
        settings.League(**wrong)


def test_picture_is_drawn(tmp_path):
    table = table_of(["b", "a", 3, 0, 1], ["b", "random", 4, 0, 0])
    assert picture.scores(table, ["a", "b"])[1].tolist()[0] == 0.75
    picture.draw(tmp_path / "league.png", "x", table, elo.ratings(table), {"a": 0, "b": 10})
    assert (tmp_path / "league.png").read_bytes().startswith(b"\x89PNG")
