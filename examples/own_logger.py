"""A logger of one's own, and a trigger whose state survives a resume.

`python train.py --gin_file=examples/own_environment.gin` uses both.
"""

import json

import gin
import tensorflow as tf

from actor_learner import parts


@gin.configurable
class RecordsLogger:
    """Appends to `records.txt` whenever an evaluation beats all before it."""

    def __init__(self, file_name="records.txt"):
        self._file_name = file_name
        self._best = float("-inf")

    def open(self, context):
        """Called once, in the process that writes metrics, before the first row."""
        self._path = context.run_dir / self._file_name
        if self._path.exists():  # A run that is resumed.
            self._best = max(float(line.split()[1]) for line in self._path.open())

    def write(self, row):
        """Takes every line of metrics; those of evaluations have `eval_return`."""
        if row.get("eval_return", float("-inf")) > self._best:
            self._best = row["eval_return"]
            with self._path.open("a") as file:
                file.write(f"{row['environment_steps']} {self._best}\n")

    def close(self):
        pass


@gin.configurable
class CallCounter(tf.train.experimental.PythonState):
    """Counts its calls over all processes of a run.

    Being a `PythonState` (or a `tf.Module` with variables) it is saved in every checkpoint and
    restored from it.
    """

    def __init__(self):
        self.calls = 0

    def __call__(self, train_step):
        self.calls += 1
        path = f"{parts.run_dir()}/calls.txt"
        with open(path, "w") as file:
            file.write(f"{self.calls} {parts.latest_row().get('environment_steps', 0)}\n")

    def serialize(self):
        return json.dumps(self.calls)

    def deserialize(self, text):
        self.calls = json.loads(text)
