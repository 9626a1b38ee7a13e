"""Runs one job, and makes sure that the job and all it starts end with its launcher.

    python -I -S guardian.py GRACE_SECONDS LIFELINE_FD DETACHED COMMAND [ARGUMENT ...]

It is a process of its own, so that it survives a launcher killed with SIGKILL. It is small and
imports nothing of ours, so that it starts in milliseconds and costs little memory.

- Standard output and error are handed on to the job; standard input is empty.
- LIFELINE_FD is the reading end of a pipe whose other end only the launcher holds. `t` on it: the
  job, not its children, gets SIGTERM, each time; what is left of it after GRACE_SECONDS is killed.
  `k`: everything is killed at once. When the launcher vanishes, this is treated like `t`; if it has
  written `!` before, like `k`.
- SIGTERM and SIGINT are like `t`, SIGQUIT is like `k`.
- When the job ends, whatever it has left running is killed. The guardian then ends the same way:
  with the same exit code, or by the same signal.
- DETACHED is 0 or 1. With 1, the guardian is a grandchild of the launcher, with a process between
  them that only hands on how the job ended: for launchers within something that kills children.

The fork server, which has imported what its jobs need, calls `guard` instead.
"""

import ctypes
import os
import resource
import select
import signal
import sys
import time

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # Of linux/prctl.h.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD)
_CANNOT_RUN = 127  # What shells return for a command that cannot be run.


def main(grace_seconds: float, lifeline: int, detached: bool, command: list[str]) -> None:
    """Runs `command` to its end; does not return."""
    if detached:
        guardian = os.fork()
        if guardian:
            os.close(lifeline)
            _end_like(os.waitpid(guardian, 0)[1])
        os.setsid()
    guard(grace_seconds, lifeline)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error}\n".encode())
    os._exit(_CANNOT_RUN)


def guard(grace_seconds: float, lifeline: int, report: int = -1) -> None:
    """Becomes the guardian of a child that it forks; returns in that child only, the job.

    Args:
      grace_seconds: How long the job may take to end when asked.
      lifeline: As described above.
      report: Where to write, for a launcher that is not the parent, the guardian's pid, and in the
        end how the job has ended: its exit code, or minus the number of the signal.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    # Grandchildren whose parent dies become our children, wherever they have moved themselves.
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    guardian = os.getpid()
    # A signal that comes while the job still has our handlers must not be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    job = os.fork()
    if job == 0:
        signal.set_wakeup_fd(-1)
        for fd in (reading, writing, lifeline, report):
            if fd >= 0:
                os.close(fd)
        _become_job(guardian, prctl)
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    _tell(report, guardian)
    status = _watch(job, grace_seconds, lifeline, reading)
    _kill_children()
    _tell(report, os.waitstatus_to_exitcode(status))
    _end_like(status)


def _tell(report: int, number: int) -> None:
    if report >= 0:
        try:
            os.write(report, f"{number}\n".encode())
        except BrokenPipeError:
            pass  # The launcher is gone.


def _become_job(guardian: int, prctl) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    os.setpgid(0, 0)  # So that nobody who signals the guardian's group reaches the job as well.
    prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != guardian:
        os._exit(_CANNOT_RUN)  # The guardian died before it was watched.
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)


def _watch(job: int, grace_seconds: float, lifeline: int, reading: int) -> int:
    """Waits until the job has ended; returns its wait status."""
    at_once = False  # Whether the launcher's end means an end without grace.
    deadline = None
    watched = [reading, lifeline]
    while True:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(watched, [], [], timeout)
        received = set(os.read(reading, 4096)) if reading in ready else set()
        ask = bool(received & {signal.SIGTERM, signal.SIGINT})
        kill = signal.SIGQUIT in received
        if lifeline in ready:
            written = os.read(lifeline, 4096)
            at_once = at_once or b"!" in written
            ask = ask or not written or b"t" in written
            kill = kill or b"k" in written or (not written and at_once)
            if not written:
                watched.remove(lifeline)
        status = _reap(job)
        if status is not None:
            return status
        if kill or (deadline is not None and time.monotonic() >= deadline):
            os.kill(job, signal.SIGKILL)
            deadline = None
        elif ask:
            os.kill(job, signal.SIGTERM)
            deadline = deadline or time.monotonic() + grace_seconds


def _reap(job: int):
    """Collects every child that has ended; the wait status of the job if it is among them."""
    found = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        if child == job:
            found = status


def _kill_children() -> None:
    """Kills all that is left; the children of what is killed become ours, and follow."""
    while True:
        for child in _children():
            os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Pids of our children, those not yet collected included, so that none is another's."""
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # It has ended meanwhile.
        if int(fields[1]) == own:
            found.append(int(name))
    return found


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The job has left its own.
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4:])
