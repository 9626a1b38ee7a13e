"""What a launcher shows of its jobs."""

import io
import re

import pytest

from actor_learner.jobs import status
from actor_learner.launch import job_rows, job_spec, supervised_job, view
from tests.reporting import test_rich_view

ROWS = [
    view.JobRow("learner-0", "learner", "running", 640.2, 1_200),
    view.JobRow("actor-0", "actor", "running", 1234.5, 1_190, 10),
    view.JobRow("actor-1", "actor", "restarting", None, None, None, 2, "in 4 s"),
]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def plain(**more):
    stream, clock = io.StringIO(), Clock()
    shown = view.PlainJobsView(stream, "cartpole", clock=clock, **more)
    shown.start()
    return shown, stream, clock


def test_a_pipe_gets_a_line_per_change_and_one_with_all_jobs_now_and_then():
    shown, stream, clock = plain(interval_seconds=10.0)
    shown.update(ROWS[:2])
    clock.now = 5.0
    shown.update(ROWS)
    clock.now = 11.0
    shown.update(ROWS)
    shown.message("actor-1 has ended")
    shown.close()
    shown.close()
    everyone = (
        "learner-0 running 640/s version 1,200 | actor-0 running 1.2k/s version 1,190 lag 10 | "
        "actor-1 restarting restarts 2 (in 4 s)"
    )
    assert stream.getvalue().splitlines() == [
        "cartpole",
        "0:00 | learner-0 running 640/s version 1,200",
        "0:00 | actor-0 running 1.2k/s version 1,190 lag 10",
        "0:05 | actor-1 restarting restarts 2 (in 4 s)",
        f"0:11 | {everyone}",
        "actor-1 has ended",
        f"0:11 | {everyone}",
    ]


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError("nobody reads")


def test_a_reader_that_goes_away_ends_nothing():
    shown = view.PlainJobsView(Gone(), "cartpole")
    shown.start()
    shown.update(ROWS)
    shown.close()


def test_many_jobs_of_a_kind_share_a_row():
    many = [
        *(view.JobRow(f"actor-{i}", "actor", "running", 10.0, 100 + i, i, 1) for i in range(3)),
        view.JobRow("actor-3", "actor", "lost", None, None, None, 0, "no heartbeats"),
    ]
    assert view.merged([ROWS[0], *many], max_rows=5) == [ROWS[0], *many]
    assert view.merged([ROWS[0], *many], max_rows=4) == [
        ROWS[0],
        view.JobRow(
            "actor ×4", "actor", "3 running", 30.0, 100, 2, 3, "1 lost, actor-3: no heartbeats"
        ),
    ]


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return test_rich_view.Terminal


def draw(terminal, rows, *, columns=80, lines=24):
    made = terminal(columns, lines)
    shown = view.RichJobsView(made.stream, "cartpole", clock=Clock())
    shown.start()
    shown.update(rows)
    shown.close()
    made.close()
    return [line for line in made.last_picture() if line]


def test_a_terminal_shows_a_table_of_all_jobs(terminal):
    title, head, *rows = draw(terminal, ROWS)
    assert title == "cartpole: 3 jobs  0:00"
    assert head.split() == ["job", "state", "steps/s", "version", "lag", "restarts"]
    assert [re.split(r"\s{2,}", row) for row in rows] == [
        ["learner-0", "running", "640/s", "1,200"],
        ["actor-0", "running", "1.2k/s", "1,190", "10"],
        ["actor-1", "restarting", "2", "in 4 s"],
    ]


def test_a_small_terminal_shows_kinds_instead_of_jobs_and_breaks_no_line(terminal):
    many = [view.JobRow(f"actor-{i}", "actor", "running", 10.0) for i in range(30)]
    lines = draw(terminal, [ROWS[0], *many], columns=40, lines=12)
    assert len(lines) == 4 and max(map(len, lines)) <= 40
    assert lines[-1].split() == ["actor", "×30", "running", "300/s"]


def test_the_view_suits_the_stream(terminal):
    assert isinstance(view.make_view(io.StringIO(), "x"), view.PlainJobsView)
    made = terminal(80)
    assert isinstance(view.make_view(made.stream, "x"), view.RichJobsView)
    made.close()


class FakeProcess:
    incarnation, note = "now", ""


class FakeReader:
    problem = ""

    def __init__(self, *statuses):
        self._statuses = {status.name: status for status in statuses}

    def status(self, name, incarnation):
        found = self._statuses.get(name)
        return found if found and found.incarnation == incarnation else None


def supervised(kind, state, process=None):
    spec = job_spec.JobSpec(kind, 0, ["true"])
    made = supervised_job.SupervisedJob(spec, None, None, print)
    made.state, made.process = state, process
    if process is not None:
        made._history.next_delay(now=0.0, ran_seconds=0.0)  # It was restarted once.
    return made


def test_rows_join_what_launcher_and_jobs_know():
    jobs = [
        supervised("actor", supervised_job.UP, FakeProcess()),
        supervised("replay", supervised_job.UP, FakeProcess()),
        supervised("learner", supervised_job.UP, FakeProcess()),
        supervised("evaluator", supervised_job.WAITING),
        supervised("watcher", supervised_job.COMPLETED, FakeProcess()),
    ]
    reader = FakeReader(
        status.Status("learner", 0, "running", incarnation="now", version=100),
        status.Status(
            "actor",
            0,
            "running",
            incarnation="now",
            version=90,
            steps_per_second=5.0,
            poll_seconds=31.0,
        ),  # fmt: skip
        status.Status("replay", 0, "running", incarnation="of its predecessor", message="old"),
    )
    assert job_rows.rows(jobs, reader, now=0.0) == [
        view.JobRow("learner-0", "learner", "running", None, 100, None, 1),
        view.JobRow("replay-0", "replay", "starting", restarts=1),
        view.JobRow("actor-0", "actor", "running", 5.0, 90, 10, 1, "in the same poll for 0:31"),
        view.JobRow("evaluator-0", "evaluator", "starting"),
        view.JobRow("watcher-0", "watcher", "completed", restarts=1),
    ]
    jobs[0].stopping = True
    assert job_rows.rows(jobs, reader, now=0.0)[2].state == "stopping"


def test_the_row_of_the_replay_shows_how_often_its_experience_is_used():
    jobs = [supervised("replay", supervised_job.UP, FakeProcess())]

    def note(message="1,024 items", **more):
        told = status.Status(
            "replay",
            0,
            "running",
            incarnation="now",
            message=message,
            details={"samples_per_insert": 7.96875},
            **more,
        )
        return job_rows.rows(jobs, FakeReader(told), now=0.0)[0].note

    assert note() == "7.97 samples/insert, 1,024 items"
    assert note(message="") == "7.97 samples/insert"
    assert note(poll_seconds=31.0) == "in the same poll for 0:31"
    failure = status.Failure("ReplayError", "no room", "")
    assert note(failure=failure) == "ReplayError"  # A message has told the rest.
