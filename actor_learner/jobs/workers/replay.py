"""The replay job: holds the experience of a run, and tells its jobs what they join."""

from __future__ import annotations

import time
import uuid
from typing import Any

import reverb
from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import jobs_settings, ray_settings
from actor_learner import plan as plan_lib
from actor_learner.environments import lanes
from actor_learner.jobs import worker
from actor_learner.jobs.exchange import replay_connection
from actor_learner.messaging import protocol
from actor_learner.replay.server import server
from actor_learner.replay.streams import recorded_replay
from actor_learner.runs import further_model, model, replay_directories, table_checks
from actor_learner.runs.league import league_side
from actor_learner.support import disk_space, errors, fault_points, unsaved

KIND = "replay"
_PORT, _RUN_ID = "replay_port", "run_id"
_IDLE_SECONDS = 0.5
_CONTENTS = "the replay's contents"


class ReplayJob(worker.Worker):
    """Serves the tables of a run; saves them now and then, and when it is told to end.

    The environment is built once, for its specs, and closed again.

    Several share the tables: each holds a part of the capacity, and saves it to a directory of its
    own.

    Args:
      port: To listen on; None takes the one that the run's server had before, or a free one.
      num_servers: How many replay servers the run has.
    """

    def __init__(self, port: int | None = None, num_servers: int = 1) -> None:
        self._port = port
        self._num_servers = num_servers
        self._server = None
        self._save_error: str | None = None

    def configure(self) -> None:
        job = self.job
        if job.index >= self._num_servers:
            raise errors.ConfigError(
                f"--index={job.index} is out of range: the run has {self._num_servers} replay "
                "server(s), counted from 0 (--num_replays)"
            )
        self._directory = None
        if job.run_dir is not None:
            self._directory = replay_directories.of_server(
                job.run_dir.replay, job.index, self._num_servers
            )
        self._experiment = experiment_lib.Experiment()
        if self._experiment.is_offline:
            raise errors.ConfigError(
                "nothing is collected in this experiment, so that there is nothing for separate "
                "jobs to do: use `actor-learner train`"
            )
        run_id = self._run_id()
        env = self._experiment.make_environment(job.seed)
        try:
            built = model.Model(
                self._experiment,
                env.time_step_spec(),
                env.action_spec(),
                lanes.as_lanes(env).num_lanes * self._experiment.ring_size,
                run_id=run_id,
                seed=job.seed,
                lanes_apart=lanes.are_apart(env),
            )
            turn_ticks = built.plan.steps_per_turn // built.plan.num_lanes
            further = {
                policy: further_model.make(
                    self._experiment,
                    env,
                    policy,
                    run_id=run_id,
                    seed=job.seed,
                    turn_ticks=turn_ticks,
                )
                for policy in further_model.trained_policies(env)
            }
        finally:
            env.close()
        plans = [each.plan for each in (built, *further.values())]
        tables = [table for plan in plans for table in self._tables_of(plan)]
        self._table = built.plan.stream.table_name
        ray_settings.Ray()  # For launchers, which do not load gin: here it counts as used.
        self._server = server.ReplayServer(
            # Tables of the user's own are not shared out: jobs find them at the first server.
            [*tables, *([] if job.index else jobs_settings.Jobs().tables)],
            self._choose_port(),
            checkpoint_dir=self._directory,
            standalone=True,
        )
        if self._server.restored_from is not None:
            logging.info("Restored from %s.", self._server.restored_from)
        if isinstance(built.plan.stream, recorded_replay.PrefilledStream):
            built.plan.stream.fill(built.plan.experience, self._server.client())
        job.remember(self._port_name(), str(self._server.port))
        address = f"{job.host}:{self._server.port}"
        self._answer = {
            "address": address,
            "contract": built.contract(run_id),
            "policies": {
                policy: further_model.contract(made, run_id, turn_ticks)
                for policy, made in further.items()
            },
            "league": league_side.has_league(env),
            "servers": self._num_servers,
        }
        job.wire.handle(replay_connection.CONTRACT, self._tell)
        job.publish_address(address)  # For jobs of the user's own.
        self._saved_at = time.monotonic()

    def _tables_of(self, plan: plan_lib.Plan) -> list[reverb.Table]:
        """The tables of a policy, or this server's share of them."""
        tables = plan.tables()
        for table in tables:
            table_checks.refuse_unfit(table, plan)
        if self._num_servers == 1:
            return tables
        if plan.copies or plan.episode_table is not None:
            raise errors.ConfigError(
                "further tables (tables, send_concise_info) cannot be spread over "
                f"{self._num_servers} replay servers (--replays): use one server, or leave the "
                "bindings out"
            )
        return plan.stream.tables_of_share(plan.experience, self._num_servers)

    def poll(self) -> worker.PollResult:
        interval = self._experiment.checkpoints.replay_seconds
        if interval and self._directory and time.monotonic() - self._saved_at >= interval:
            unsaved.ledger().attempt(_CONTENTS, self._save, where=self._directory)
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
        if self._directory is not None:
            unsaved.ledger().attempt(_CONTENTS, self._server.checkpoint, where=self._directory)

    def _save(self) -> Any:
        """Saves; an error does not end a server whose contents are worth saving."""
        try:
            self._server.checkpoint()
        except (errors.ReplayError, OSError) as error:
            if disk_space.is_out_of_space(error, self._directory):
                raise
            logging.error("The contents are not saved; the next attempt follows: %s", error)
            self._save_error = f"NOT SAVED: {error}"
            return unsaved.LATER
        self._save_error = None
        fault_points.reach(fault_points.CONTENTS_SAVED)
        return None

    def _tell(self, request: protocol.Request) -> None:
        request.answer(self._answer)

    def _run_id(self) -> str:
        """The id of the run, which its directory keeps; where there is none, the registry does.

        The further ones of several servers, which may be on machines without that directory, ask
        the first one.
        """
        if self.job.index:
            return replay_connection.ask_run_id(self.job)
        if self.job.run_dir is not None:
            return self.job.run_dir.run_id()
        return self.job.agree_on(_RUN_ID, uuid.uuid4().hex)

    def _port_name(self) -> str:
        """Under which name the registry keeps the port."""
        return f"{_PORT}_{self.job.index}" if self.job.index else _PORT

    def _choose_port(self) -> int | None:
        """The port of the run's earlier server, which its writers and readers keep trying."""
        if self._port is not None:
            return self._port
        before = self.job.recall(self._port_name()) or ""
        if not before.isdecimal():
            return None
        if server.port_is_free(int(before)):
            return int(before)
        logging.warning("Port %s, which the run's server had, is taken: jobs must restart.", before)
        return None
