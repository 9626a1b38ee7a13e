"""A job of one's own: watches a replay table and writes statistics to a file.

`actor-learner up --gin_file=examples/table_watcher.gin --actors=2` starts it beside our jobs, shows
it in the same view, restarts it when it fails and stops it with the run. On another machine it is
`actor-learner custom watcher --gin_file=examples/table_watcher.gin --run=mine --registry=…`.
"""

import contextlib
import json
import sys
import time

import gin
import reverb

from actor_learner.jobs import worker
from actor_learner.naming import name_errors
from actor_learner.replay.server import state
from actor_learner.support import errors, reverb_calls


@gin.configurable
class TableWatcher(worker.Worker):
    """Appends size and use of all tables to `tables.jsonl` of its folder, every `interval_seconds`.

    On a machine without the run directory it has no folder: there the rows are printed.

    Args:
      interval_seconds: Between two rows.
      most_rows: After so many the job is done; None goes on until the run is.
      timeout_seconds: How long the replay server may take to answer.
    """

    def __init__(self, interval_seconds: float = 5.0, most_rows=None, timeout_seconds: float = 5.0):
        self._interval_seconds = interval_seconds
        self._most_rows = most_rows
        self._timeout_seconds = timeout_seconds
        self._rows = 0
        self._message = ""
        self._items = 0
        self._closing = contextlib.ExitStack()

    def configure(self):
        # The replay may take a while to come up; `job` knows where everybody is.
        self._connect(timeout=300.0)
        directory = self.job.directory
        self._file = (
            sys.stdout
            if directory is None
            else self._closing.enter_context(open(directory / "tables.jsonl", "a"))
        )

    def _connect(self, timeout):
        self._address = self.job.address_of("replay", timeout=timeout)
        self._client = reverb.Client(self._address)

    def poll(self):
        try:
            tables = reverb_calls.fetch_tables(self._client, self._timeout_seconds)
        except errors.ReplayTimeoutError:
            # It saves, or restarts, maybe elsewhere: the registry knows where it is then.
            self._message = f"waits for the replay server, last at {self._address}"
            with contextlib.suppress(errors.JobTimeoutError, name_errors.RegistryUnavailableError):
                self._connect(timeout=1.0)
            return worker.PollResult(idle_seconds=1.0)
        row = {"time": time.time()}
        for name, info in tables.items():
            table = state.from_table_info(info)
            row[name] = {"size": table.size, "inserts": table.inserts, "samples": table.samples}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        self._rows += 1
        self._items = sum(info.current_size for info in tables.values())
        self._message = f"{self._items:,} items"
        return worker.PollResult(
            done=self._rows == self._most_rows, idle_seconds=self._interval_seconds
        )

    def status(self):
        return {"steps": self._rows, "message": self._message, "items": self._items}

    def close(self):
        self._closing.close()
