"""A SavedModel that waits in memory for room on the disk."""

from __future__ import annotations

import os
import uuid
from typing import Callable

import tensorflow as tf


class HeldPolicy:
    """What `save` writes, kept in TensorFlow's file system in memory.

    Args:
      save: Writes a SavedModel to the path it is given.
    """

    def __init__(self, save: Callable[[str], None]) -> None:
        self._path = f"ram://held-{uuid.uuid4().hex}"
        save(self._path)

    def write(self, path: str) -> None:
        """Copies it to a directory, which must not exist."""
        for directory, _, names in tf.io.gfile.walk(self._path):
            target = os.path.join(path, os.path.relpath(directory, self._path))
            os.makedirs(target, exist_ok=True)
            for name in names:
                tf.io.gfile.copy(os.path.join(directory, name), os.path.join(target, name))

    def discard(self) -> None:
        """Frees the memory; safe to call twice."""
        if tf.io.gfile.exists(self._path):
            tf.io.gfile.rmtree(self._path)
