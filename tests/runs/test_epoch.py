"""Of the processes that have trained a run, the latest alone may save and speak."""

import os
import subprocess
import sys

import pytest

from actor_learner import run_directory
from actor_learner.runs import epoch
from actor_learner.support import errors


@pytest.fixture
def run(tmp_path):
    return run_directory.RunDirectory(tmp_path / "run")


def test_processes_that_train_a_run_are_counted_from_zero(run):
    assert [epoch.Epoch.begin(run).number for _ in range(3)] == [0, 1, 2]
    assert [path.name for path in run.path.iterdir()] == [epoch.FILE]


def test_the_latest_may_go_on_and_all_earlier_ones_are_refused(run):
    first = epoch.Epoch.begin(run)
    first.require_latest()
    second = epoch.Epoch.begin(run)
    second.require_latest()
    third = epoch.Epoch.begin(run)
    third.require_latest()
    for superseded in (first, second):
        with pytest.raises(errors.SupersededError) as raised:
            superseded.require_latest()
        said = str(raised.value)
        assert f"another process has begun to train {run}" in said
        assert f"(epoch 2; this one is {superseded.number})" in said


def test_another_process_supersedes_this_one(run):
    ours = epoch.Epoch.begin(run)
    begin = (
        "import sys\n"
        "from actor_learner import run_directory\n"
        "from actor_learner.runs import epoch\n"
        "print(epoch.Epoch.begin(run_directory.RunDirectory(sys.argv[1])).number)\n"
    )
    theirs = subprocess.run(
        [sys.executable, "-c", begin, str(run)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert theirs.stdout == "1\n"
    with pytest.raises(errors.SupersededError, match="epoch 1; this one is 0"):
        ours.require_latest()
    assert epoch.Epoch.begin(run).number == 2


@pytest.mark.parametrize("content", ["many\n", ""])
def test_a_count_that_cannot_be_read_is_an_error_and_not_a_new_beginning(run, content):
    ours = epoch.Epoch.begin(run)
    (run.path / epoch.FILE).write_text(content)
    for call in (ours.require_latest, lambda: epoch.Epoch.begin(run)):
        with pytest.raises(errors.ConfigError, match="epoch counts the .*, and cannot be read"):
            call()
    assert (run.path / epoch.FILE).read_text() == content


def test_a_count_that_cannot_be_written_is_an_error(run, monkeypatch):
    epoch.Epoch.begin(run)

    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(errors.ConfigError, match="cannot be written: .*Permission denied"):
        epoch.Epoch.begin(run)
    assert (run.path / epoch.FILE).read_text() == "1\n"
    assert [path.name for path in run.path.iterdir()] == [epoch.FILE]
