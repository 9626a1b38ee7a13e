"""Loaded by every Python process of a soak: notes now and then what only the process itself knows.

One line in `$SOAK_NOTES/<pid>`, rewritten in place: blocks that Python's allocator has handed out,
and bytes that glibc's has. TensorFlow 2.15 on Python 3.11 loses one of the blocks per eager tensor.
(Objects are not counted: `gc.get_objects` in a second thread breaks tuples that another one is
still making.)
"""

import ctypes
import gc
import os
import sys
import threading
import time

_SECONDS = 2.0
_WORDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc, over all arenas."""

    _fields_ = [(word, ctypes.c_size_t) for word in _WORDS.split()]


def _heap_bytes() -> int:
    """Bytes that are in use: unlike resident memory, without what the allocator keeps for later."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _MallocInfo
    info = ask()
    return info.uordblks + info.hblkhd


def _note(path: str) -> None:
    with open(path, "w") as file:
        while True:
            gc.collect()
            file.seek(0)
            file.write(f"{sys.getallocatedblocks():020d} {_heap_bytes():020d}\n")
            file.flush()
            time.sleep(_SECONDS)


def _start() -> None:
    path = os.path.join(os.environ["SOAK_NOTES"], str(os.getpid()))
    threading.Thread(target=_note, args=(path,), name="soak-probe", daemon=True).start()


if "SOAK_NOTES" in os.environ:
    _start()
    os.register_at_fork(after_in_child=_start)  # Jobs are forked, and threads are not.
