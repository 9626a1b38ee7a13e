"""The ledger of what a full disk keeps from being saved."""

import errno
import shutil
import threading

import gin
import pytest
import tensorflow as tf

from actor_learner import config
from actor_learner.support import disk_space, errors, unsaved
from tests.small_disk import small_disk  # noqa: F401 - a fixture.

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """Something to write that fails as long as it is told to."""

    def __init__(self, error=NO_SPACE):
        self.error = error
        self.calls = 0

    def write(self):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return "written"


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def ledger(now):
    made = unsaved.Ledger(clock=lambda: now[0])
    made.told = []
    made.say = made.told.append
    return made


@pytest.mark.parametrize(
    "error",
    [
        NO_SPACE,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        shutil.Error([("a", "b", "No space left on device")]),
        IndexError("/replay/items.tfrecord; No space left on device"),
        RuntimeError("flush failed: No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "/ckpt-1_temp; No space left on device"),
        tf.errors.UnknownError(None, None, "write failed: Disk quota exceeded"),
    ],
)
def test_errors_of_a_full_disk_are_known_in_every_disguise(error):
    assert disk_space.is_out_of_space(error)
    wrapped = errors.ReplayError("could not save")
    wrapped.__cause__ = error
    assert disk_space.is_out_of_space(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        IndexError("list index out of range"),
        ValueError("No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
    ],
)
def test_other_errors_are_not_taken_for_it_and_are_raised(error, ledger, tmp_path):
    assert not disk_space.is_out_of_space(error, tmp_path)
    with pytest.raises(type(error)):
        ledger.attempt("the checkpoint", Disk(error).write, where=tmp_path)
    assert ledger.summary() == ""


def test_an_error_without_words_counts_if_the_file_system_is_full_in_fact(small_disk):  # noqa: F811
    error = IndexError("")
    assert not disk_space.is_out_of_space(error, small_disk.path / "not" / "there" / "yet")
    small_disk.fill()
    assert disk_space.is_out_of_space(error, small_disk.path / "not" / "there" / "yet")


def test_what_is_not_saved_is_told_tried_again_with_longer_pauses_and_told_when_saved(ledger, now):
    disk = Disk()
    assert ledger.attempt("the checkpoint", disk.write) is None
    assert "NOT SAVED: the checkpoint" in ledger.told[0]
    calls = []
    for _ in range(200):
        now[0] += 1.0
        ledger.retry_due()
        if not calls or disk.calls != calls[-1][1]:
            calls.append((now[0], disk.calls))
    pauses = [b[0] - a[0] for a, b in zip(calls, calls[1:])]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0][: len(pauses)]
    assert len(pauses) >= 8
    assert len(ledger.told) == 1  # Not once per attempt.
    now[0] = 340.0
    assert ledger.summary() == "NOT SAVED: the checkpoint (disk full for 4:00)"
    disk.error = None
    ledger.retry_due()
    assert ledger.told[1:] == ["saved at last, after 4:00: the checkpoint"]
    assert ledger.summary() == "" and ledger.entries == []


def test_callers_that_come_often_leave_it_until_it_is_due(ledger, now):
    disk = Disk()
    for _ in range(10):
        ledger.attempt("rows", disk.write, if_due=True)
    assert disk.calls == 1
    now[0] += 1.0
    disk.error = None
    assert ledger.attempt("rows", disk.write, if_due=True) == "written"


def test_another_obstacle_does_not_count_as_saved(ledger, now):
    disk = Disk()
    ledger.attempt("the best policy", disk.write, retry=lambda: unsaved.LATER)
    now[0] += 1.0
    ledger.retry_due()
    assert [entry.what for entry in ledger.entries] == ["the best policy"]
    assert not ledger.is_due("the best policy")


def test_only_the_thread_that_it_belongs_to_tries_again(ledger, now):
    disk = Disk()
    ledger.attempt("the checkpoint", disk.write)
    now[0] += 1.0
    ledger.thread = threading.current_thread()
    other = threading.Thread(target=ledger.retry_due)
    other.start()
    other.join()
    assert disk.calls == 1
    ledger.retry_due()
    assert disk.calls == 2


def test_the_end_waits_for_room_and_says_for_what(ledger):
    ledger = unsaved.Ledger()
    ledger.say = (told := []).append
    ledger.final_wait_seconds = 60.0
    disk = Disk()
    ledger.attempt("the checkpoint", disk.write)

    def make_room():
        disk.error = None
        return False

    assert ledger.settle(make_room)
    assert any("waiting up to 60 s" in line and "the checkpoint" in line for line in told)
    assert ledger.closing_lines() == []


def test_the_end_gives_up_when_asked_to_or_when_its_time_is_up():
    ledger = unsaved.Ledger()
    ledger.attempt("the checkpoint", Disk().write)
    ledger.final_wait_seconds = 60.0
    assert not ledger.settle(lambda: True)
    ledger.final_wait_seconds = 0.0
    assert not ledger.settle()
    (line,) = ledger.closing_lines()
    assert line.startswith("NOT SAVED:    the checkpoint: ")


def test_losses_are_counted_and_told_at_the_end(ledger):
    ledger.lose("rows of metrics.csv", 3)
    ledger.lose("rows of metrics.csv", 2)
    assert len(ledger.told) == 1
    assert ledger.closing_lines() == ["LOST:         5 rows of metrics.csv: the disk was full"]


def test_a_scope_has_a_ledger_of_its_own():
    outer = unsaved.ledger()
    with unsaved.scope() as inner:
        assert unsaved.ledger() is inner is not outer
    assert unsaved.ledger() is outer


def test_how_long_the_end_waits_is_bound_in_gin():
    config.load(config.ConfigSource(("dqn_cartpole",), ("full_disk.final_wait_seconds = 5",)))
    try:
        assert unsaved.full_disk() == 5
    finally:
        gin.clear_config()
    with pytest.raises(errors.ConfigError, match="final_wait_seconds"):
        unsaved.full_disk(final_wait_seconds=-1)
