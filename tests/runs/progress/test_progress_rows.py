"""Lines of metrics: how often they are written."""

import pytest

from actor_learner.acting import metrics
from actor_learner.replay.server import state
from actor_learner.reporting import row_limit
from actor_learner.runs.progress import progress_rows, progress_state
from actor_learner.support import errors

TABLE = state.TableState("experience", 10, 10, 10, 10, 10, 1.0, None, "")


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def rows_of_a_run(seconds, every=1.0, interval_seconds=1.0, steps=None):
    """Seconds at which a run that asks once `every` so many seconds writes its rows."""
    clock, rows = Clock(), []
    statistics = metrics.EpisodeStatistics()
    progress = progress_state.ProgressState(statistics, clock)
    writer = progress_rows.ProgressRows(
        progress=progress,
        statistics=statistics,
        counters=lambda: (int(clock.seconds if steps is None else steps(clock.seconds)), 0),
        table=lambda: TABLE,
        transitions=lambda items: items,
        epsilon=None,
        version_lag=lambda: None,
        on_row=rows.append,
        interval_seconds=interval_seconds,
    )
    progress.start()
    writer.start()
    while clock.seconds < seconds:
        clock.seconds += every
        writer.write_if_due(None)
    return [row["seconds"] for row in rows]


def test_rows_come_at_their_interval_while_the_run_is_short():
    assert rows_of_a_run(100) == [float(second) for second in range(1, 101)]


def test_the_first_row_comes_with_the_first_steps_and_the_next_at_its_interval():
    found = rows_of_a_run(6, every=0.25, interval_seconds=2.0, steps=lambda now: now > 0.6)
    assert found == [0.75, 2.75, 4.75]


def test_a_run_without_steps_writes_rows_at_their_interval_until_there_are_some():
    found = rows_of_a_run(6, every=0.25, interval_seconds=2.0, steps=lambda now: now > 2.6)
    assert found == [2.0, 2.75, 4.75]


def test_rows_of_a_long_run_become_fewer(monkeypatch):
    monkeypatch.setattr(row_limit, "row_limit", lambda: 100)
    found = rows_of_a_run(10_000)
    assert found[:100] == [float(second) for second in range(1, 101)]
    # From there on, by one hundredth of the time so far: 100 · ln(10,000 / 100) more of them.
    assert 100 + 380 <= len(found) <= 100 + 461
    assert found[-1] - found[-2] == pytest.approx(10_000 / 100, rel=0.02)


def test_an_interval_that_is_longer_anyway_stays():
    assert rows_of_a_run(100_000, every=100.0, interval_seconds=200.0)[-3:] == [
        99_500.0,
        99_700.0,
        99_900.0,
    ]


def test_a_number_of_rows_that_makes_no_sense_is_refused():
    with pytest.raises(errors.ConfigError, match="row_limit.dense must be at least 1, got 0"):
        row_limit.row_limit(dense=0)
