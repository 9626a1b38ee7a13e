"""Games reach the learner once, also when a learner is another than the actor thinks."""

import pytest

from actor_learner.jobs.exchange import game_reports
from actor_learner.jobs.workers import game_journal
from actor_learner.league import payoff, reported_payoff
from actor_learner.messaging import messages

WIN = payoff.Record(1, 0, 0)


def test_only_what_is_not_counted_is_reported():
    own = payoff.PayoffTable()
    own.add("b", "a", WIN)
    reports = game_reports.GameReports(
        {"earlier": payoff.PayoffTable({("b", "a"): WIN}), "me": own}
    )
    assert reports.rows() == [["earlier", "b", "a", 1, 0, 0], ["me", "b", "a", 1, 0, 0]]
    assert not reports.are_counted
    own.add("b", "a", WIN)  # While the report is under way.
    reports.note_counted()
    assert reports.rows() == [["me", "b", "a", 2, 0, 0]]
    reports.note_counted()
    assert reports.rows() == [] and reports.are_counted
    reports.begin_again()
    assert len(reports.rows()) == 2 and not reports.are_counted


def test_many_pairs_take_several_reports(monkeypatch):
    monkeypatch.setattr(game_reports, "MAX_ROWS", 3)
    table = payoff.PayoffTable({("b", str(number)): WIN for number in range(7)})
    reports, kept = game_reports.GameReports({"me": table}), reported_payoff.ReportedPayoff()
    for expected in (3, 3, 1):
        rows = reports.rows()
        assert len(rows) == expected and not reports.are_counted
        for process, *totals in rows:
            kept.take("0", process, [totals])
        reports.note_counted()
    assert reports.are_counted and kept.table.records == table.records


def test_journal_outlives_its_process(tmp_path):
    first = game_journal.GameJournal(tmp_path, "one")
    for opponent in ("league-0", "random", "league-0"):
        first.count("league-1", opponent, WIN)
    second = game_journal.GameJournal(tmp_path, "two")
    assert {name: table.records for name, table in second.earlier.items()} == {
        "one": {("league-1", "league-0"): (2, 0, 0), ("league-1", "random"): (1, 0, 0)}
    }
    assert second.table.games == 0
    # Without a directory nothing is kept, and nothing fails.
    game_journal.GameJournal(None, "three").count("b", "a", WIN)


def test_a_torn_row_is_left_out(tmp_path):
    game_journal.GameJournal(tmp_path, "one").count("b", "a", WIN)
    path = tmp_path / game_journal.FOLDER / "one"
    path.write_bytes(path.read_bytes() + b"league-1")
    (found,) = game_journal.GameJournal(tmp_path, "two").earlier.values()
    assert found.records == {("b", "a"): WIN}


@pytest.mark.parametrize(
    "wrong", [None, [["p", "b", "a", 1, 0]], [["p", "b", "a", 1, 0, -1]], [["p", "b", 1, 0, 0, 0]]]
)
def test_what_is_no_list_of_games_is_refused(wrong):
    with pytest.raises(messages.BadMessageError):
        game_reports.checked(wrong)
