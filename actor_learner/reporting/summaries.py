"""TensorFlow's summaries, which leave training alone when there is no room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actor_learner.support import disk_space, unsaved

if TYPE_CHECKING:
    import tensorflow as tf

# What TensorFlow holds back before it writes, and some more.
_ROOM_BYTES = 2**20


class Summaries:
    """Owns the writer of a directory, and says when to write.

    A graph whose summaries cannot be written fails with them, a train step included. So they are
    left out, and counted as lost, while the disk is nearly full.

    Args:
      directory: Where the event file goes; None or "" for a writer that writes nothing.
      whose: Who writes them: "the learner".

    Attributes:
      writer: TensorFlow's.
    """

    def __init__(self, directory: str | None, whose: str) -> None:
        import tensorflow as tf

        self._tf = tf
        self._directory = directory
        self._what = f"TensorBoard summaries of {whose}"
        self.writer = tf.summary.create_noop_writer()
        if directory and disk_space.has_room(directory, _ROOM_BYTES):
            self.writer = tf.summary.create_file_writer(directory, flush_millis=10000)
        elif directory:
            unsaved.ledger().lose(f"event file for all {self._what} in this process", 1)

    def have_room(self) -> bool:
        """Whether to write those that are due; if not, they count as lost."""
        if not self._directory or disk_space.has_room(self._directory, _ROOM_BYTES):
            return True
        unsaved.ledger().lose(self._what, 1)
        return False

    def are_cause_of(self, error: tf.errors.OpError) -> bool:
        """Whether a graph failed because of them, the disk having filled up meanwhile."""
        if not self._directory or not disk_space.is_out_of_space(error, self._directory):
            return False
        unsaved.ledger().lose(self._what, 1)
        return True

    def close(self) -> None:
        """Writes what TensorFlow holds back, and closes the file."""
        try:
            self.writer.flush()
        except self._tf.errors.OpError as error:
            if not self.are_cause_of(error):
                raise
            return  # Closing would write once more, and fail in the same way.
        self.writer.close()
