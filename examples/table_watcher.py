"""A job of one's own: watches a replay table and writes statistics to a file.

`actor-learner up --gin_file=examples/table_watcher.gin --actors=2` starts it beside our jobs, shows
it in the same view, restarts it when it fails and stops it with the run.
"""

import json
import time

import gin
import reverb

from actor_learner import errors, reverb_calls
from actor_learner.jobs import worker
from actor_learner.replay import state


@gin.configurable
class TableWatcher(worker.Worker):
    """Appends size and use of all tables to `tables.jsonl` of its folder, every `interval_seconds`.

    Args:
      interval_seconds: Between two rows.
      most_rows: After so many the job is done; None goes on until the run is.
    """

    def __init__(self, interval_seconds: float = 5.0, most_rows=None):
        self._interval_seconds = interval_seconds
        self._most_rows = most_rows
        self._rows = 0
        self._items = 0
        self._file = None

    def configure(self):
        # The replay may take a while to come up; `job` knows where everybody is.
        self._client = reverb.Client(self.job.address_of("replay", timeout=300.0))
        self._file = open(self.job.directory / "tables.jsonl", "a")

    def poll(self):
        try:
            tables = reverb_calls.fetch_tables(self._client, timeout_seconds=5.0)
        except errors.ReplayTimeoutError:
            return worker.PollResult(idle_seconds=1.0)  # It saves, or restarts.
        row = {"time": time.time()}
        for name, info in tables.items():
            table = state.from_table_info(info)
            row[name] = {"size": table.size, "inserts": table.inserts, "samples": table.samples}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        self._rows += 1
        self._items = sum(info.current_size for info in tables.values())
        return worker.PollResult(
            done=self._rows == self._most_rows, idle_seconds=self._interval_seconds
        )

    def status(self):
        return {"steps": self._rows, "message": f"{self._items:,} items", "items": self._items}

    def close(self):
        if self._file is not None:
            self._file.close()
