"""Imports what jobs need, once, and forks the jobs of a run, which start without importing it.

    python -m actor_learner.launch.fork_server SOCKET_FD MODULE,... PADDING

Five jobs that import TensorFlow, TF-Agents and Reverb each keep two cores busy for ten seconds
before the first of them begins to work. Importing starts no thread and no device of TensorFlow, nor
anything of gRPC: the process is forked in that state only, which is checked. `forking` is the end
that the launcher holds; it sends one message per job: its command, environment and files, among
them one in which the job's guardian reports its pid, and how the job has ended.

A forked job is what `python -m` would have made of its command, except that some modules are
already imported. The server obeys the process that started it, which holds the other end of its
socket, and ends with it. PADDING makes room for the commands that `ps` is to show.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import sysconfig
from typing import Any, NamedTuple

from actor_learner.launch import guardian

MESSAGE_BYTES = 1 << 16
"""The longest message."""

_SET_PARENT_DEATH_SIGNAL = 1  # Of linux/prctl.h.
_ARGUMENTS_START, _ARGUMENTS_END = 47, 48  # Of /proc/PID/stat, from 0.


class _Request(NamedTuple):
    """One job to be forked: its message, and the files that came with it."""

    body: dict[str, Any]
    log: int
    lifeline: int
    report: int

    def close(self) -> None:
        for fd in (self.log, self.lifeline, self.report):
            os.close(fd)


def main(control: socket.socket, modules: list[str]) -> int:
    """Serves until the launcher hangs up, or, in a job that was forked, until that job's end."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    problem = import_all(modules)
    if problem:
        print(f"jobs are not forked: {problem}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Guardians report their end to the launcher.
    while (request := _receive(control)) is not None:
        if _fork_guardian(request, control):
            _become(request)
            runpy.run_module(request.body["module"], run_name="__main__", alter_sys=True)
            return 0
        request.close()
    return 0


def import_all(modules: list[str]) -> str:
    """Imports modules; returns why forking would be unsafe afterwards, or an empty string."""
    gc.disable()  # Nothing is garbage while modules are loaded; looking for it takes a tenth.
    importlib.import_module("numpy")
    threads = _num_threads()  # Those of NumPy's BLAS, which stops them for a fork by itself.
    for name in modules:
        importlib.import_module(name)
    gc.enable()
    gc.freeze()  # So that no collection in a job touches, and so copies, pages that all share.
    if _num_threads() > threads:
        return "an import has started threads, which a fork does not take along"
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is not None and context.context()._initialized:
        return "an import has initialised TensorFlow's devices"
    return ""


def _num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _receive(control: socket.socket) -> _Request | None:
    message, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
    return _Request(json.loads(message), *fds) if message else None


def _fork_guardian(request: _Request, control: socket.socket) -> bool:
    """Forks the guardian of a job, which forks the job; returns True in the job, False here."""
    if os.fork():
        return False
    control.close()  # Otherwise requests at a dead server would wait until this job ends.
    os.setsid()
    os.dup2(request.log, 1)
    os.dup2(request.log, 2)
    os.close(request.log)
    _show_as(request.body["command"])
    guardian.guard(request.body["grace_seconds"], request.lifeline, request.report)
    return True


def _become(request: _Request) -> None:
    """Makes this process what it would be if started with the request's command."""
    import numpy as np

    before = _python_path()
    for name, value in request.body["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    after = _python_path()
    # Python's own directories stay, even if PYTHONPATH has named one of them as well.
    gone = {*before, *after} - set(sysconfig.get_paths().values())
    sys.path[1:] = [*after, *(path for path in sys.path[1:] if path not in gone)]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # As Python does when it starts.
    sys.argv = ["-m", *request.body["arguments"]]
    np.random.seed()  # Python's own generator is seeded again by the fork.


def _python_path() -> list[str]:
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(path) for path in entries if path]


def _show_as(command: list[str]) -> None:
    """Makes `ps` show `command` for this process, as far as there is room for it.

    The kernel reads the command line from the process's memory, where it may be written over.
    """
    with open("/proc/self/stat", "rb") as file:
        # The name, the second field, is in parentheses and may hold anything.
        fields = file.read().rpartition(b")")[2].split()
    start, end = (int(fields[index - 2]) for index in (_ARGUMENTS_START, _ARGUMENTS_END))
    if 0 < start < end:
        shown = b"\0".join(map(os.fsencode, command))[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2].split(",")))
