"""Keeps what libraries print while they are imported from the terminal. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import tempfile
import types

_CHATTY = "tensorflow"


def import_module(name: str) -> types.ModuleType:
    """Imports a module; TensorFlow's and gym's greetings are dropped, unless the import fails.

    Once TensorFlow is there, this is a plain import. Until then file descriptors 1 and 2 and
    Python's streams lead to a buffer while the import lasts, a few seconds; other threads that
    print meanwhile print there too.
    """
    if _CHATTY in sys.modules:
        return importlib.import_module(name)
    said = io.StringIO()
    with tempfile.TemporaryFile() as native:
        try:
            with (
                contextlib.redirect_stdout(said),
                contextlib.redirect_stderr(said),
                _descriptors_to(native.fileno()),
            ):
                return importlib.import_module(name)
        except BaseException:
            # What was said may be the reason.
            native.seek(0)
            print(native.read().decode(errors="replace") + said.getvalue(), file=sys.stderr, end="")
            raise


@contextlib.contextmanager
def _descriptors_to(target: int):
    with contextlib.ExitStack() as undo:
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None and not stream.closed:
                stream.flush()
        for descriptor in (1, 2):
            try:
                saved = os.dup(descriptor)
            except OSError:
                continue  # Closed: there is nobody to be spared.
            undo.callback(os.close, saved)
            undo.callback(os.dup2, saved, descriptor)
            os.dup2(target, descriptor)
        yield
