"""Versions are found by their metadata, and a condition is never executed."""

import numpy as np
import pytest

from actor_learner import cli
from actor_learner.parameters import parameter_errors, store, where


@pytest.fixture
def held(tmp_path):
    made = store.ParameterStore(tmp_path / "parameters")
    for version, metadata in (
        (0, {}),
        (10, {"win_rate": 0.4, "player": "league-1"}),
        (20, {"win_rate": 0.7, "player": "league-2"}),
        (30, {"win_rate": 0.9, "player": "league-3", "steps": -5}),
    ):
        made.push("policy", {"x": np.zeros(1)}, version, metadata=metadata)
    made.tag("policy", 20, "best")
    return made


@pytest.mark.parametrize(
    "text, expected",
    [
        ("win_rate > 0.6", [30, 20]),
        ("win_rate > 0.6 and version < 25", [20]),
        ("win_rate < 0.5 or player == 'league-3'", [30, 10]),
        ("'best' in tags", [20]),
        ("not 'best' in tags", [30, 10, 0]),
        ("0.3 < win_rate <= 0.7", [20, 10]),
        ("steps == -5", [30]),
        ("player != 'league-1'", [30, 20]),  # Not version 0, which has none.
        ("(win_rate > 0.8 or version == 0) and not version == 30", [0]),
        ("unknown > 1", []),
    ],
)
def test_versions_are_found_by_condition(held, text, expected):
    assert [found.version for found in held.list("policy", where=text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "win_rate",
        "win_rate > (lambda: 1)()",
        "win_rate.real > 0",
        "win_rate > 1 + 1",
        "tags[0] == 'best'",
        "win_rate >",
        "",
        "a = 1",
        "x is 1",
        "not " * 400 + "a > 1",
        "(" * 300 + "a > 1" + ")" * 300,
    ],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(parameter_errors.ParameterError, match="is not a condition"):
        where.parse(text)


def test_values_that_cannot_be_compared_are_named(held):
    with pytest.raises(parameter_errors.ParameterError, match="version 30 cannot be compared"):
        held.list("policy", where="win_rate > 'x'")


def test_command_lists_what_fulfils_a_condition(held, capsys):
    assert cli.main(["params", "list", str(held), "--where", "win_rate > 0.8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("policy: 1 of 4, 0 of them tagged, in")
    assert [line.split()[0] for line in lines[1:]] == ["version", "30"]
    assert cli.main(["params", "list", str(held), "--where", "win_rate >"]) != 0
    assert "is not a condition" in capsys.readouterr().err


def test_tags_say_their_versions(held):
    assert held.tags("policy") == {"best": 20}
    assert held.tags("nobody") == {}
