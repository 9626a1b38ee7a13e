import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from actor_learner.reporting import jsonl
from actor_learner.support import errors


def test_rows_are_on_disk_as_soon_as_written(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    logger = jsonl.JsonlLogger(path)
    logger.write({"environment_steps": 10, "return": np.float32(1.5), "note": "Größe"})
    assert jsonl.read_rows(path) == [{"environment_steps": 10, "return": 1.5, "note": "Größe"}]
    logger.write({"environment_steps": 20})
    assert len(path.read_text().splitlines()) == 2
    logger.close()


def test_reopening_appends(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        logger = jsonl.JsonlLogger(path)
        logger.write({"environment_steps": step})
        logger.close()
    assert jsonl.read_rows(path) == [{"environment_steps": 1}, {"environment_steps": 2}]


def test_a_line_torn_by_a_kill_is_repaired_on_open_and_ignored_by_readers(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"environment_steps": 1}\n{"environment_st')
    assert jsonl.read_rows(path) == [{"environment_steps": 1}]
    logger = jsonl.JsonlLogger(path)
    logger.write({"environment_steps": 2})
    logger.close()
    assert path.read_text() == '{"environment_steps": 1}\n{"environment_steps": 2}\n'


def test_a_killed_process_loses_no_written_row(tmp_path):
    path = tmp_path / "metrics.jsonl"
    code = (
        "import os, signal, sys\n"
        "from actor_learner.reporting import jsonl\n"
        "logger = jsonl.JsonlLogger(sys.argv[1])\n"
        "for step in range(50): logger.write({'environment_steps': step})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, os.fspath(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [row["environment_steps"] for row in jsonl.read_rows(path)] == list(range(50))


def test_a_diverged_loss_survives_in_valid_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    logger = jsonl.JsonlLogger(path)
    logger.write({"loss": math.nan, "a": math.inf, "b": -math.inf})
    logger.close()

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "loss": "NaN",
        "a": "Infinity",
        "b": "-Infinity",
    }
    (row,) = jsonl.read_rows(path)
    assert math.isnan(row["loss"]) and row["a"] == math.inf and row["b"] == -math.inf


@pytest.mark.parametrize("line", ["{broken", "[1, 2]", ""])
def test_a_damaged_line_is_reported_with_its_place(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n' + line + '\n{"a": 2}\n')
    with pytest.raises(errors.ActorLearnerError, match="metrics.jsonl:2 is not a JSON object"):
        jsonl.read_rows(path)


def test_truncating_drops_the_rows_beyond_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    logger = jsonl.JsonlLogger(path)
    for step in (100, 200, 300, 400):
        logger.write({"environment_steps": step, "return": 0.1 * step})
    logger.close()
    assert jsonl.truncate_after(path, 250) == 2
    assert jsonl.read_rows(path) == [
        {"environment_steps": 100, "return": 10.0},
        {"environment_steps": 200, "return": 20.0},
    ]
    assert jsonl.truncate_after(path, 200) == 0
    assert list(tmp_path.iterdir()) == [path]


def test_truncating_a_missing_file_does_nothing(tmp_path):
    assert jsonl.truncate_after(tmp_path / "metrics.jsonl", 10) == 0
    assert list(tmp_path.iterdir()) == []
