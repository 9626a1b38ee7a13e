"""The Reverb server inside a run's only process, with the tables of all its policies."""

from __future__ import annotations

from collections.abc import Sequence

import reverb
from absl import logging

from actor_learner import parts, run_directory
from actor_learner import plan as plan_lib
from actor_learner.replay.server import server
from actor_learner.replay.streams import local_unrolls, recorded_replay
from actor_learner.runs import replay_directories, table_checks
from actor_learner.support import unsaved


class EmbeddedReplay:
    """Serves the experience of one run, restored from its directory.

    Args:
      plan: What the experiment comes to; its stream says which tables there are.
      run: Where the contents are saved.
      more_tables: Tables of further policies.

    Raises:
      errors.ConfigError: If a table would block the run, or several servers have saved what it is
        to be resumed with.

    Attributes:
      server: The server, whose address a learner's dataset connects to.
      client: A client of it.
    """

    def __init__(
        self,
        plan: plan_lib.Plan,
        run: run_directory.RunDirectory,
        more_tables: Sequence[reverb.Table] = (),
    ) -> None:
        directory = replay_directories.of_server(run.replay, 0, 1)
        self._stream = plan.stream
        self._run = run
        tables = plan.tables()
        for table in tables:
            table_checks.refuse_unfit(table, plan)
        self.server = server.ReplayServer([*tables, *more_tables], checkpoint_dir=directory)
        try:
            self.client = self.server.client()
            parts.publish(replay_client=self.client)
            if isinstance(plan.stream, recorded_replay.PrefilledStream):
                plan.stream.fill(plan.experience, self.client)
        except BaseException:
            self.server.stop()
            raise

    def table_state(self) -> server.TableState:
        """Returns the state of the table, or the queue, with the experience."""
        if isinstance(self._stream, local_unrolls.LocalUnrolls):
            return self._stream.table_state()
        return self.server.info().tables[self._stream.table_name]

    def save(self) -> None:
        """Saves the contents; if the disk is full, the `unsaved` ledger keeps that in mind."""
        unsaved.ledger().attempt("the replay's contents", self._save, where=self._run.replay)

    def _save(self) -> None:
        logging.info("Saved the replay's contents to %s.", self.server.checkpoint())

    def close(self) -> None:
        """Ends the server."""
        self.server.stop()
