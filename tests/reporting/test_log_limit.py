"""Logs are emptied while processes, native code and children write to them: as real processes."""

import os
import subprocess
import sys
import textwrap

import pytest

from actor_learner.reporting import log_limit
from actor_learner.support import errors

PROGRAM = """
import os, subprocess, sys, time
from actor_learner.reporting import log_limit, process_output
log_limit._LOOK_SECONDS = 0.01
log_limit.log_limit = lambda: 4096
path = sys.argv[1]

def wait_for_move(before):
    deadline = time.monotonic() + 30
    while os.path.getsize(path) >= before:
        assert time.monotonic() < deadline, "the log was not emptied"
        time.sleep(0.005)
"""


def run(path, code):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(code), str(path)],
        check=True,
        capture_output=True,
        timeout=120,
    )


def test_native_writers_and_children_go_on_writing_to_a_log_that_was_emptied(tmp_path):
    path = tmp_path / "log"
    run(
        path,
        """
        with process_output.capture_native_output(path, capture_stdout=True) as output:
            child = subprocess.Popen(
                ["sh", "-c", "read line; echo from a child >&2"], stdin=subprocess.PIPE
            )
            with log_limit.limited(path):
                os.write(2, b"".join(b"old line %04d\\n" % i for i in range(400)))
                wait_for_move(before=5_000)
                os.write(2, b"written to descriptor 2\\n")
                os.write(1, b"written to descriptor 1\\n")
                child.communicate(b"go\\n")
                print("through the stream", file=output.log)
        """,
    )
    new, old = path.read_text(), (tmp_path / "log.1").read_text()
    for line in ("descriptor 2", "descriptor 1", "from a child", "through the stream"):
        assert line in new
    assert "\0" not in new  # Nobody wrote at an offset from before.
    assert f"What was logged before is in {path}.1." in new
    lines = old.splitlines()
    assert lines[-1] == "old line 0399"  # The newest stay, and no line is cut.
    assert all(len(line) == len("old line 0399") for line in lines)
    assert len(old) <= 4096


def test_a_log_that_is_moved_again_and_again_takes_up_twice_its_limit_at_most(tmp_path):
    path = tmp_path / "log"
    largest = 0
    for turn in range(20):
        with open(path, "ab") as file:
            file.write(b"".join(b"turn %02d line %03d\n" % (turn, i) for i in range(150)))
        log_limit.move_if_large(path, 4096)
        largest = max(largest, sum(f.stat().st_size for f in tmp_path.iterdir()))
    assert largest <= 2 * 4096
    kept = (tmp_path / "log.1").read_text() + path.read_text()
    assert kept.endswith("turn 19 line 149\n")


def test_the_output_of_somebody_else_is_left_alone(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10_000)
    run(
        path,
        """
        with log_limit.limited(path):  # Standard error is a pipe here.
            import threading
            assert "log-limit" not in [thread.name for thread in threading.enumerate()]
        """,
    )
    assert path.stat().st_size == 10_000


def test_a_log_that_cannot_be_copied_stays_as_it_is(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"line\n" * 2_000)
    (tmp_path / "log.1.new").mkdir()
    with pytest.raises(OSError):
        log_limit.move_if_large(path, 4096)
    assert path.stat().st_size == 10_000


def test_a_limit_in_which_nothing_can_be_read_is_refused():
    with pytest.raises(errors.ConfigError, match="log_limit.max_bytes must be at least 4096"):
        log_limit.log_limit(max_bytes=100)


def test_the_limit_of_a_run_comes_from_its_gin_file(tmp_path):
    """A whole run, whose log is small: the limit is lowered until it has to be moved."""
    program = f"""
    import sys
    from actor_learner.reporting import log_limit
    log_limit._LOOK_SECONDS = 0.01
    from actor_learner import cli
    sys.exit(cli.main([
        "train", "--gin_file=dqn_cartpole.gin", "--run_dir={tmp_path}/run", "--seed=1",
        "--gin_param=log_limit.max_bytes = 4096",
        "--gin_param=Experiment.environment_steps = 1_500",
        "--gin_param=Evaluation.target_return = None",
    ]))
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
    )
    logs = {path.name: path.stat().st_size for path in (tmp_path / "run/jobs/train-0").iterdir()}
    assert set(logs) == {"log", "log.1"}
    assert logs["log.1"] <= 4096
