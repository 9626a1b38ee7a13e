"""Metric files and logs on a real disk that fills up and is freed again."""

import csv
import os
import sys

import pytest
import tensorflow as tf

from actor_learner import run_directory
from actor_learner.reporting import jsonl, kept_rows, metric_files, patient_stream
from actor_learner.support import unsaved
from tests.small_disk import small_disk  # noqa: F401 - a fixture.

LINE = "0123456789" * 10 + "\n"


@pytest.fixture
def ledger():
    with unsaved.scope() as made:
        yield made


def row(step):
    return {"seconds": float(step), "environment_steps": step, "return": step / 2}


def test_rows_wait_for_room_and_no_file_holds_half_of_one(small_disk, ledger):  # noqa: F811
    run_dir = run_directory.RunDirectory(small_disk.path)
    files = metric_files.open_metric_files(run_dir, 0)
    files.write(row(1))
    small_disk.fill()
    for step in range(2, 100):  # Some still fit into the last blocks of the files.
        files.write(row(step))
    files.write({**row(100), "loss": 0.5})  # A new column: the table is to be written anew.
    assert {entry.what for entry in ledger.entries} == {
        *("metrics.jsonl", "metrics.csv", "TensorBoard's charts")
    }
    assert "rows wait" in ledger.summary()
    assert (run_dir.metrics_jsonl.read_text()).endswith("\n")
    assert run_dir.metrics_csv.read_text().endswith("\n")
    small_disk.free()
    assert ledger.settle()
    files.close()
    expected = list(range(1, 101))
    assert [r["environment_steps"] for r in jsonl.read_rows(run_dir.metrics_jsonl)] == expected
    with open(run_dir.metrics_csv, newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(r["environment_steps"]) for r in table] == expected
    assert table[-1]["loss"] == "0.5"
    drawn = set()
    for path in run_dir.tensorboard.glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            drawn |= {event.step for value in event.summary.value if "return" in value.tag}
    assert drawn == set(expected)
    hidden = [path for path in small_disk.path.iterdir() if path.name.startswith(".")]
    assert hidden == []


def test_rows_past_the_restored_step_are_cut_once_there_is_room(small_disk, ledger):  # noqa: F811
    run_dir = run_directory.RunDirectory(small_disk.path)
    before = metric_files.open_metric_files(run_dir, 0)
    for step in range(1, 6):
        before.write(row(step))
    before.close()
    small_disk.fill()
    after = metric_files.open_metric_files(run_dir, 3)
    after.write(row(4))
    assert ledger.entries
    small_disk.free()
    assert ledger.settle()
    after.close()
    steps = [r["environment_steps"] for r in jsonl.read_rows(run_dir.metrics_jsonl)]
    assert steps == [1, 2, 3, 4]


def test_of_too_many_rows_the_oldest_are_lost_and_counted(small_disk, ledger):  # noqa: F811
    path = small_disk.path / "metrics.jsonl"
    small_disk.fill()
    rows = kept_rows.KeptRows("rows", path, lambda: jsonl.JsonlLogger(path), most_rows=3)
    for step in range(1, 7):
        rows.write(row(step))
    small_disk.free()
    rows.close()
    assert [r["environment_steps"] for r in jsonl.read_rows(path)] == [4, 5, 6]
    assert ledger.closing_lines() == ["LOST:         3 rows of rows: the disk was full"]


def test_a_row_that_is_none_is_an_error_and_does_not_hold_up_the_others(tmp_path, ledger):
    files = metric_files.open_metric_files(run_directory.RunDirectory(tmp_path), 0)
    with pytest.raises(Exception, match="environment_steps"):
        files.write({"seconds": 1.0})
    files.write(row(1))
    files.close()
    rows = jsonl.read_rows(tmp_path / "metrics.jsonl")
    assert rows[-1]["environment_steps"] == 1
    assert ledger.entries == []


def opened(path):
    return patient_stream.open_stream(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))


def test_a_log_keeps_its_lines_until_there_is_room(small_disk):  # noqa: F811
    path = small_disk.path / "log"
    stream = opened(path)
    stream.write("before\n")
    small_disk.fill()
    for _ in range(100):
        print(LINE, end="", file=stream, flush=True)
    small_disk.free()
    stream.write("after\n")
    assert path.read_text() == "before\n" + 100 * LINE + "after\n"


def test_a_log_says_how_much_of_it_is_missing(small_disk):  # noqa: F811
    path = small_disk.path / "log"
    stream = opened(path)
    small_disk.fill()
    for _ in range(3_000):
        stream.write(LINE)
    small_disk.free()
    stream.write("after\n")
    text = path.read_text()
    kept = 256 * 1024
    assert f"[{3_000 * len(LINE) - kept} bytes are missing here: the disk was full]" in text
    assert text.endswith(LINE + "after\n")


def test_other_errors_of_a_log_are_raised(tmp_path):
    reading, writing = os.pipe()
    stream = patient_stream.open_stream(writing)
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        stream.write("x\n")


def test_the_standard_streams_of_a_process_are_patient_and_given_back(small_disk):  # noqa: F811
    before = sys.stdout, sys.stderr
    with open(small_disk.path / "out", "w") as file:
        sys.stdout = file
        try:
            with patient_stream.standard_streams():
                small_disk.fill()
                for _ in range(100):
                    print(LINE, end="", flush=True)
                small_disk.free()
                print("end", flush=True)
            assert sys.stdout is file
        finally:
            sys.stdout, sys.stderr = before
    assert (small_disk.path / "out").read_text() == 100 * LINE + "end\n"
