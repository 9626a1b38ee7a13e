"""The replay job: holds the experience of a run, and all that its jobs tell one another."""

from __future__ import annotations

import time
import uuid
from typing import Any

from absl import logging

from actor_learner.jobs import host_address, worker
from actor_learner.support import disk_space, errors, unsaved

KIND = "replay"
_PORT = "replay_port"
_IDLE_SECONDS = 0.5
_EMPTY_SECONDS = 60.0
_CONTENTS = "the replay's contents"


class ReplayJob(worker.Worker):
    """Serves the tables of a run; saves them now and then, and when it is told to end.

    The environment is built once, for its specs, and closed again.

    Args:
      host: Under which name other machines reach this one; None finds out.
      port: To listen on; None takes the one that the run's server had before, or a free one.
    """

    def __init__(self, host: str | None = None, port: int | None = None) -> None:
        self._host = host
        self._port = port
        self._server = None
        self._save_error: str | None = None

    def configure(self) -> None:
        from actor_learner import experiment as experiment_lib
        from actor_learner.environments import lanes
        from actor_learner.jobs import contract, extra_jobs, mailbox, replay_connection
        from actor_learner.parameters import publication
        from actor_learner.replay.server import server
        from actor_learner.replay.streams import recorded_replay
        from actor_learner.runs import best_policy, model, table_checks

        job = self.job
        if job.index != 0:
            raise errors.ConfigError(f"a run has one replay job, so --index={job.index} has none")
        self._experiment = experiment_lib.Experiment()
        if self._experiment.is_offline:
            raise errors.ConfigError(
                "nothing is collected in this experiment, so that there is nothing for separate "
                "jobs to do: use `actor-learner train`"
            )
        env = self._experiment.make_environment(job.seed)
        try:
            built = model.Model(
                self._experiment,
                env.time_step_spec(),
                env.action_spec(),
                lanes.as_lanes(env).num_lanes,
                seed=job.seed,
                num_actors=job.num_actors,
            )
        finally:
            env.close()
        experience = built.plan.stream.tables(built.plan.experience)
        for table in experience:
            table_checks.refuse_unfit(table, built.plan)
        tables = [
            *experience,
            *publication.publication_tables(built.published_variables()),
            best_policy.best_table(),
            mailbox.mailbox_table(mailbox.REPORTS),
            mailbox.mailbox_table(mailbox.EVALUATIONS),
            contract.contract_table(),
            *extra_jobs.Jobs().tables,
        ]
        self._table = tables[0].name
        if job.run_dir is not None:
            table_checks.refuse_replay_of_one_process(job.run_dir)
        self._server = server.ReplayServer(
            tables,
            self._choose_port(),
            checkpoint_dir=None if job.run_dir is None else job.run_dir.replay,
            standalone=True,
        )
        client = self._server.client()
        if self._server.restored_from is None:
            run_id = job.remembered(replay_connection.RUN_ID, uuid.uuid4().hex)
        else:
            logging.info("Restored from %s.", self._server.restored_from)
            # Jobs that have lived on know it by this one, even if the registry has lost it.
            run_id = contract.read(client)["run id"]
            # What the learner said before is not so any more, least of all that it is done.
            self._forget(publication.ANNOUNCEMENTS_TABLE)
        if isinstance(built.plan.stream, recorded_replay.PrefilledStream):
            built.plan.stream.fill(built.plan.experience, client)
        contract.write(client, built.contract(run_id))
        job.remember(replay_connection.RUN_ID, run_id)
        job.remember(_PORT, str(self._server.port))
        job.publish_address(f"{self._host or host_address.own_host(job)}:{self._server.port}")
        self._saved_at = time.monotonic()

    def poll(self) -> worker.PollResult:
        interval = self._experiment.replay_checkpoint_seconds
        if interval and self.job.run_dir and time.monotonic() - self._saved_at >= interval:
            unsaved.ledger().attempt(_CONTENTS, self._save, where=self.job.run_dir.replay)
            self._saved_at = time.monotonic()
        return worker.PollResult(idle_seconds=_IDLE_SECONDS)

    def status(self) -> dict[str, Any]:
        try:
            table = self._server.info().tables[self._table]
        except errors.ReplayTimeoutError:
            return {"message": self._save_error or "busy"}
        message = f"{table.size:,} items"
        if self._save_error is not None:
            message = f"{message}; {self._save_error}"
        return {"message": message, "samples_per_insert": table.samples_per_insert}

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()

    def save(self) -> None:
        if self.job.run_dir is not None:
            unsaved.ledger().attempt(
                _CONTENTS, self._server.checkpoint, where=self.job.run_dir.replay
            )

    def _save(self) -> Any:
        """Saves; an error does not end a server whose contents are worth saving."""
        try:
            self._server.checkpoint()
        except (errors.ReplayError, OSError) as error:
            if disk_space.is_out_of_space(error, self.job.run_dir.replay):
                raise
            logging.error("The contents are not saved; the next attempt follows: %s", error)
            self._save_error = f"NOT SAVED: {error}"
            return unsaved.LATER
        self._save_error = None
        return None

    def _forget(self, table: str) -> None:
        from actor_learner.support import reverb_calls

        client = self._server.client()
        reverb_calls.call_with_deadline(
            lambda: client.reset(table),
            _EMPTY_SECONDS,
            lambda: reverb_calls.no_answer(client.server_address, _EMPTY_SECONDS),
        )

    def _choose_port(self) -> int | None:
        """The port of the run's earlier server, which its writers and readers keep trying."""
        if self._port is not None:
            return self._port
        from actor_learner.replay.server import server

        before = self.job.remembered(_PORT, "0")
        if before == "0":
            return None
        if server.port_is_free(int(before)):
            return int(before)
        logging.warning("Port %s, which the run's server had, is taken: jobs must restart.", before)
        return None
