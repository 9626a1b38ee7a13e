"""What an actor has done is known to its successor, however it ended."""

import errno
import os
import pathlib
import signal
import subprocess
import sys
import types

import numpy as np
import pytest

from actor_learner.jobs.workers import step_journal

FIRST, MID, LAST = 0, 1, 2


def step(types_before, types_after):
    return (
        types.SimpleNamespace(step_type=np.array(types_before)),
        None,
        types.SimpleNamespace(step_type=np.array(types_after)),
    )


def test_steps_and_episodes_are_those_of_all_lanes_without_boundaries(tmp_path):
    journal = step_journal.StepJournal(tmp_path, "a")
    journal(step([FIRST, MID], [MID, LAST]))
    journal(step([MID, LAST], [LAST, FIRST]))
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a", 3, 2)]


def test_a_step_of_one_lane_without_its_dimension_counts(tmp_path):
    journal = step_journal.StepJournal(tmp_path, "a")
    journal(step(MID, LAST))
    journal(step(LAST, FIRST))
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a", 1, 1)]


def test_counts_of_the_actor_itself_win(tmp_path):
    journal = step_journal.StepJournal(tmp_path, "a/b c")
    journal(step([MID], [MID]))
    journal.correct(5, 2)
    journal(step([MID], [LAST]))
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a/b c", 6, 3)]


def test_the_latest_processes_are_known_the_oldest_first(tmp_path):
    for number in range(12):
        step_journal.StepJournal(tmp_path, f"p{number}").correct(number + 1, 0)
        os.utime(tmp_path / step_journal.FOLDER / f"p{number}", ns=(number, number))
    earlier = step_journal.StepJournal(tmp_path, "now").earlier
    assert [process.steps for process in earlier] == list(range(5, 13))
    assert len(list((tmp_path / step_journal.FOLDER).iterdir())) == step_journal.MAX_EARLIER + 1


def test_processes_that_did_nothing_displace_none_that_did(tmp_path):
    step_journal.StepJournal(tmp_path, "a").correct(5, 1)
    for number in range(2 * step_journal.MAX_EARLIER):
        step_journal.StepJournal(tmp_path, f"idle{number}").correct(0, 0)
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a", 5, 1)]
    assert {path.name for path in (tmp_path / step_journal.FOLDER).iterdir()} == {"a", "b"}


def test_a_file_that_vanishes_meanwhile_is_left_out(tmp_path, monkeypatch):
    step_journal.StepJournal(tmp_path, "a").correct(5, 1)
    folder, listed = tmp_path / step_journal.FOLDER, pathlib.Path.iterdir
    monkeypatch.setattr(pathlib.Path, "iterdir", lambda path: [*listed(path), folder / "vanished"])
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a", 5, 1)]


def test_a_disk_that_is_full_does_not_end_an_actor(tmp_path, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "no space left")

    journal = step_journal.StepJournal(tmp_path, "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", write)
        journal(step([MID], [MID]))
    journal(step([MID], [MID]))
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a", 2, 0)]


@pytest.mark.parametrize("content", [b"x", b"half a count"])
def test_what_is_not_a_count_is_left_out(tmp_path, content):
    folder = tmp_path / step_journal.FOLDER
    folder.mkdir()
    (folder / "broken").write_bytes(content)
    assert step_journal.StepJournal(tmp_path, "a").earlier == []


def test_an_actor_without_a_directory_of_its_own_counts_for_itself_alone():
    journal = step_journal.StepJournal(None, "a")
    journal(step([MID], [MID]))
    assert journal.earlier == []


def test_a_directory_that_cannot_be_written_does_not_end_an_actor(tmp_path):
    (tmp_path / step_journal.FOLDER).write_text("in the way")
    journal = step_journal.StepJournal(tmp_path, "a")
    journal(step([MID], [MID]))
    assert journal.earlier == []


def test_a_killed_process_leaves_its_counts(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from actor_learner.jobs.workers import step_journal\n"
        "step_journal.StepJournal(Path(sys.argv[1]), 'a').correct(70, 3)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert step_journal.StepJournal(tmp_path, "b").earlier == [("a", 70, 3)]
