"""Says so where TensorFlow loses memory with every tensor that Python makes."""

from __future__ import annotations

import sys

import tensorflow as tf
from absl import logging


def warn() -> None:
    """Logs a warning on Python 3.11, whose TensorFlow 2.15 leaks; nothing on 3.9 and 3.10."""
    if leaks():
        logging.warning(
            "TensorFlow %s on Python %d.%d never gives back 48 bytes of every eager tensor "
            "(tensorflow#62551): a run of this kind grows by some MB per million environment "
            "steps. On Python 3.10 it does not: use that for runs of many days.",
            tf.__version__,
            *sys.version_info[:2],
        )


def leaks() -> bool:
    """Whether this TensorFlow leaks on this Python.

    Since Python 3.11 attributes of objects are kept in memory of their own, which TensorFlow 2.15
    does not know of when it frees a tensor.
    """
    return sys.version_info[:2] >= (3, 11) and tf.__version__.startswith("2.15.")
