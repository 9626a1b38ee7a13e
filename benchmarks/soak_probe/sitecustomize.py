"""Loaded by every Python process of a soak: notes now and then what only the process itself knows.

One line in `$SOAK_NOTES/<pid>`, rewritten in place: blocks that Python's allocator has handed out.
TensorFlow 2.15 on Python 3.11 loses one of them per eager tensor. (Objects are not counted:
`gc.get_objects` in a second thread breaks tuples that another one is still making.)
"""

import gc
import os
import sys
import threading
import time

_SECONDS = 2.0


def _note(path: str) -> None:
    with open(path, "w") as file:
        while True:
            gc.collect()
            file.seek(0)
            file.write(f"{sys.getallocatedblocks():020d}\n")
            file.flush()
            time.sleep(_SECONDS)


if "SOAK_NOTES" in os.environ:
    _path = os.path.join(os.environ["SOAK_NOTES"], str(os.getpid()))
    threading.Thread(target=_note, args=(_path,), name="soak-probe", daemon=True).start()
