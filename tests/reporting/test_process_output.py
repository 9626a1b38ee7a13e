"""Each test runs a process of its own: what is tested are its file descriptors."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

PREAMBLE = """
import os, subprocess, sys, warnings, logging
from absl import logging as absl_logging
from actor_learner.reporting import process_output
log_path = sys.argv[1]
"""


def run(tmp_path, code, **streams):
    """Runs `code`; returns (exit code, standard output, standard error, log)."""
    log_path = tmp_path / "run dir" / "train.log"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), str(log_path)],
        check=False,
        env={**os.environ, "PYTHONFAULTHANDLER": ""},
        **streams,
    )
    out, err = ((text or b"").decode() for text in (done.stdout, done.stderr))
    return done.returncode, out, err, log_path.read_text() if log_path.exists() else None


def test_native_and_child_output_goes_to_the_log_and_messages_to_the_terminal(tmp_path):
    code = """
    print("before", file=sys.stderr)
    with process_output.capture_native_output(log_path) as output:
        os.write(2, b"glog chatter\\n")
        subprocess.run(["sh", "-c", "echo from a child >&2"])
        print("our message ±", file=output.terminal)
        print("python error", file=sys.stderr)
        print("result")
        assert str(output.log_path) == log_path
    os.write(2, b"native again\\n")
    print("after", file=sys.stderr)
    """
    assert run(tmp_path, code) == (
        0,
        "result\n",
        "before\nour message ±\npython error\nnative again\nafter\n",
        "glog chatter\nfrom a child\n",
    )


def test_standard_output_is_captured_only_when_asked(tmp_path):
    code = """
    print("before")
    with process_output.capture_native_output(
        log_path, terminal="stdout", capture_stdout=True
    ) as output:
        print("printed by an environment")
        sys.stdout.flush()
        os.write(1, b"native\\n")
        print("shown", file=output.terminal)
        print("an error", file=sys.stderr)
    print("after")
    """
    assert run(tmp_path, code) == (
        0,
        "before\nshown\nafter\n",
        "an error\n",
        "printed by an environment\nnative\n",
    )


def test_what_imports_print_goes_to_the_log(tmp_path):
    code = """
    with process_output.capture_native_output(log_path) as output:
        with output.quiet_imports():
            print("Gym has been unmaintained", file=sys.stderr)
            print("Hello from the pygame community")
        print("shown", file=sys.stderr)
    """
    assert run(tmp_path, code) == (
        0,
        "",
        "shown\n",
        "Gym has been unmaintained\nHello from the pygame community\n",
    )


def test_an_import_error_still_reaches_the_terminal(tmp_path):
    code = """
    with process_output.capture_native_output(log_path) as output:
        with output.quiet_imports():
            import there_is_no_such_module
    """
    status, _, err, log = run(tmp_path, code)
    assert status == 1
    assert err.endswith("ModuleNotFoundError: No module named 'there_is_no_such_module'\n")
    assert log == ""


def test_a_traceback_in_a_thread_reaches_the_terminal(tmp_path):
    code = """
    import threading
    with process_output.capture_native_output(log_path) as output:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    """
    status, _, err, log = run(tmp_path, code)
    assert (status, log) == (0, "")
    assert err.endswith("ZeroDivisionError: division by zero\n")


def test_logging_and_warnings_go_to_the_log_and_are_given_back(tmp_path):
    code = """
    handlers = list(logging.getLogger().handlers)
    verbosity, showwarning = absl_logging.get_verbosity(), warnings.showwarning
    with process_output.capture_native_output(log_path):
        absl_logging.info("absl %d", 7)
        logging.getLogger("tensorflow").warning("retracing")
        warnings.warn("deprecated", stacklevel=1)
    assert logging.getLogger().handlers == handlers
    assert (absl_logging.get_verbosity(), warnings.showwarning) == (verbosity, showwarning)
    """
    status, out, err, log = run(tmp_path, code)
    assert (status, out, err) == (0, "", "")
    first, second, third = log.splitlines()[:3]
    assert first.startswith("I") and first.endswith("] absl 7")
    assert second.startswith("W") and second.endswith("] retracing")
    assert third.endswith("UserWarning: deprecated")


def test_the_log_is_appended_to(tmp_path):
    code = """
    with process_output.capture_native_output(log_path) as output:
        os.write(2, b"a line\\n")
        output.log.write("ours\\n")
    """
    run(tmp_path, code)
    assert run(tmp_path, code)[3] == "a line\nours\n" * 2


def test_standard_error_may_already_be_a_file(tmp_path):
    code = """
    with process_output.capture_native_output(log_path) as output:
        os.write(2, b"native\\n")
        print("message", file=output.terminal)
        assert not output.terminal.isatty()
    """
    with open(tmp_path / "stderr.txt", "wb") as file:
        assert run(tmp_path, code, stderr=file)[3] == "native\n"
    assert (tmp_path / "stderr.txt").read_text() == "message\n"


@pytest.mark.parametrize("closed", [(2,), (1, 2), (0, 1, 2)])
def test_closed_streams_are_replaced_by_the_log(tmp_path, closed):
    code = """
    with process_output.capture_native_output(log_path) as output:
        os.write(2, b"native\\n")
        print("message", file=output.terminal)
        print("error", file=sys.stderr)
    assert sys.stderr is None
    os.write(2, b"to nobody\\n")
    """

    def close_streams():
        for fd in closed:
            os.close(fd)

    status, out, err, log = run(tmp_path, code, preexec_fn=close_streams)
    assert (status, out, err) == (0, "", "")
    assert log == "native\nmessage\nerror\n"


def test_a_crash_leaves_its_last_words_and_the_python_stack_in_the_log(tmp_path):
    code = """
    def train():
        os.write(2, b"F0101 Check failed: size > 0\\n")
        os.abort()

    with process_output.capture_native_output(log_path) as output:
        print("training", file=output.terminal)
        train()
    """
    status, _, err, log = run(tmp_path, code)
    assert (status, err) == (-signal.SIGABRT, "training\n")
    lines = log.splitlines()
    assert lines[:2] == ["F0101 Check failed: size > 0", "Fatal Python error: Aborted"]
    assert any(line.endswith("in train") for line in lines)


def test_a_fatal_log_message_is_shown_and_ends_the_process(tmp_path):
    code = """
    with process_output.capture_native_output(log_path):
        absl_logging.fatal("the table is gone")
    """
    status, _, err, log = run(tmp_path, code)
    assert status == -signal.SIGABRT
    assert "] the table is gone\n" in err
    assert "] the table is gone\n" in log


def test_a_text_that_is_no_valid_unicode_does_no_harm(tmp_path):
    code = """
    with process_output.capture_native_output(log_path) as output:
        print("file \\udcff", file=output.terminal)
    """
    assert run(tmp_path, code) == (0, "", "file \\udcff\n", "")


def test_the_copies_of_the_terminal_are_not_inherited(tmp_path):
    code = """
    with process_output.capture_native_output(log_path) as output:
        subprocess.run(
            ["sh", "-c", "ls -l /proc/self/fd | grep -c pipe"], close_fds=False, stdout=2
        )
    """
    # The one pipe is between `ls` and `grep`; the process's own two must not be among the files.
    status, _, err, log = run(tmp_path, code, stdin=subprocess.DEVNULL)
    assert (status, err) == (0, "")
    assert log == "1\n"


def test_an_unknown_terminal_is_refused_and_nothing_is_changed(tmp_path):
    code = """
    try:
        process_output.capture_native_output(log_path, terminal="tty")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    os.write(2, b"still here\\n")
    """
    assert run(tmp_path, code) == (
        0,
        "ActorLearnerError: terminal is 'tty'; 'stderr' or 'stdout'\n",
        "still here\n",
        None,
    )
