"""Keeps the noise of native libraries off the terminal: it goes to the run's log instead."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import logging
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO

from absl import logging as absl_logging

from actor_learner.reporting import patient_stream
from actor_learner.support import errors

_FIRST_FREE_FD = 3  # Below are standard input, output and error, even where they are closed.


class CapturedOutput:
    """The process's output, split between terminal and log; made by `capture_native_output`.

    Attributes:
      terminal: Text stream on the original standard error (or output), line-buffered UTF-8. Where
        the original is closed, it writes to the log.
      log: Text stream on the log file, line-buffered.
      log_path: The log file.

    A full disk breaks neither: see `patient_stream`. Both streams outlive `close`: a library
    imported meanwhile may have kept `sys.stderr`, and would fail on a closed one when it says
    goodbye at exit.
    """

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        terminal: str | TextIO,
        capture_stdout: bool,
        echo_log: bool = False,
    ) -> None:
        if isinstance(terminal, str) and terminal not in ("stderr", "stdout"):
            raise errors.ActorLearnerError(f"terminal is {terminal!r}; 'stderr' or 'stdout'")
        self.log_path = pathlib.Path(log_path)
        self._restore = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self.log = _open_log(self.log_path)
            if isinstance(terminal, str):
                saved = {fd: self._saved_copy(fd) for fd in (1, 2)}
                self._error_stream = saved[2]
                self.terminal = saved[1 if terminal == "stdout" else 2]
            else:
                self._error_stream = self.terminal = terminal
            for fd in (1, 2) if capture_stdout else (2,):
                self._redirect(fd, undo)
            # Tracebacks of uncaught exceptions are for the user; children have the log as fd 2.
            self._rebind("stderr", self._error_stream, undo)
            if capture_stdout:
                # Python's own stream on fd 1 would fail on a full disk, at exit at the latest.
                self._rebind("stdout", self.log, undo)
            self._log_python_messages(undo, echo_log)
            if not faulthandler.is_enabled():
                # The Python stack at a crash, right after what the library said before it.
                faulthandler.enable(file=self.log.fileno())
                undo.callback(faulthandler.disable)
            self._restore = undo.pop_all()

    @contextlib.contextmanager
    def quiet_imports(self) -> Iterator[None]:
        """Within it, what Python code prints to `sys.stdout` or `sys.stderr` goes to the log.

        For importing libraries that greet or nag. An exception passes through unchanged.
        """
        with contextlib.redirect_stdout(self.log), contextlib.redirect_stderr(self.log):
            yield

    def close(self) -> None:
        """Gives the process its own output back. May be called twice."""
        self._restore.close()

    def __enter__(self) -> CapturedOutput:
        return self

    def __exit__(self, *unused_error: object) -> None:
        self.close()

    def _saved_copy(self, fd: int) -> TextIO:
        copy = _duplicate(fd)
        return self.log if copy is None else patient_stream.open_stream(copy)

    def _redirect(self, fd: int, undo: contextlib.ExitStack) -> None:
        original = _duplicate(fd)
        _flush_python_streams()
        os.dup2(self.log.fileno(), fd, inheritable=True)
        undo.callback(_restore_fd, fd, original)

    @staticmethod
    def _rebind(name: str, stream: TextIO, undo: contextlib.ExitStack) -> None:
        undo.callback(setattr, sys, name, getattr(sys, name))
        setattr(sys, name, stream)

    def _log_python_messages(self, undo: contextlib.ExitStack, echo: bool) -> None:
        """Sends every Python logger, absl's included, and warnings to the log."""
        root = logging.getLogger()
        handlers = list(root.handlers)
        verbosity = absl_logging.get_verbosity()
        showwarning = warnings.showwarning

        def restore() -> None:
            root.handlers[:] = handlers
            absl_logging.set_verbosity(verbosity)
            warnings.showwarning = showwarning

        undo.callback(restore)
        # With a handler at the root, TensorFlow attaches none of its own to standard error.
        root.handlers[:] = [_LogHandler(self.log)]
        if echo and self.terminal is not self.log:
            echoed = logging.StreamHandler(self.terminal)
            echoed.setFormatter(absl_logging.PythonFormatter())
            root.handlers.append(echoed)
        absl_logging.set_verbosity(absl_logging.INFO)
        warnings.showwarning = self._show_warning

    def _show_warning(self, message, category, filename, lineno, file=None, line=None) -> None:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (self.log if file is None else file).write(text)


def capture_native_output(
    log_path: str | os.PathLike,
    *,
    terminal: str | TextIO = "stderr",
    capture_stdout: bool = False,
    echo_log: bool = False,
) -> CapturedOutput:
    """Sends file descriptor 2 (C++ libraries, child processes) to `log_path`, until closed.

        with capture_native_output(run / "train.log") as output:
            with output.quiet_imports():
                import tensorflow
            print("training", file=output.terminal)

    While it lasts, `sys.stderr` and `terminal` still reach the user: uncaught exceptions show up.
    Logging (absl, standard library) and warnings go to the log. So does, on a crash of native code,
    what the library wrote last, followed by the Python stack. The log is appended to; its directory
    is created. One capture at a time; only the main thread should open and close it.

    Args:
      log_path: The log file.
      terminal: "stderr" or "stdout": where `.terminal` writes; or a stream that is not on a
        descriptor of this process, such as that of a notebook's cell.
      capture_stdout: Whether file descriptor 1, and so `print`, goes to the log as well.
      echo_log: Whether what Python code logs is shown on `terminal`, too.
    """
    return CapturedOutput(
        log_path, terminal=terminal, capture_stdout=capture_stdout, echo_log=echo_log
    )


class _LogHandler(logging.StreamHandler):
    """Writes absl's format to the log; hands what is fatal to absl, which prints it and aborts."""

    def __init__(self, stream: TextIO):
        super().__init__(stream)
        self.setFormatter(absl_logging.PythonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if record.levelno >= logging.CRITICAL:
            absl_logging.get_absl_handler().handle(record)


def _open_log(path: pathlib.Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    if fd < _FIRST_FREE_FD:  # Standard streams are closed, and the log took a place of theirs.
        low, fd = fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
        os.close(low)
    return patient_stream.open_stream(fd)


def _duplicate(fd: int) -> int | None:
    """A private copy that children do not inherit; None where `fd` is closed."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    except OSError:
        return None


def _restore_fd(fd: int, original: int | None) -> None:
    try:
        _flush_python_streams()
    finally:
        if original is None:
            # Left closed, the next file opened would take its place and get what libraries print.
            original = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(original, fd, inheritable=True)
        os.close(original)


def _flush_python_streams() -> None:
    streams: list[TextIO | None] = [sys.stdout, sys.stderr]
    for stream in streams:
        if stream is not None and not stream.closed:
            stream.flush()
