"""Waiting for processes and files, with generous deadlines."""

import pathlib
import time

DEADLINE = 150.0


def wait_until(predicate, what):
    deadline = time.monotonic() + DEADLINE
    while not predicate():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def wait_until_gone(pids):
    wait_until(lambda: not any(map(is_alive, pids)), f"{pids} have ended")


def lines_of(path, number):
    """The lines of a file, once it has `number` whole ones."""
    path = pathlib.Path(path)
    wait_until(
        lambda: path.exists() and path.read_text().count("\n") >= number,
        f"{path} has {number} lines",
    )
    return path.read_text().split()


def with_word(word):
    """Pids of all processes that have `word` on their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # It has ended meanwhile.
    return found
