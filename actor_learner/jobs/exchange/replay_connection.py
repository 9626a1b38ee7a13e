"""Connects a job to the replay server of its run, and checks that the job fits the run."""

from __future__ import annotations

import time
from typing import Any

import reverb
from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner.jobs import job as job_lib
from actor_learner.jobs.exchange import peer
from actor_learner.messaging import protocol
from actor_learner.runs import contract as contract_lib
from actor_learner.runs import further_model
from actor_learner.runs import model as model_lib
from actor_learner.support import errors, reverb_calls, seeds

CONTRACT = "contract"
"""The request for the run's contract and the server's address."""

_TRY_SECONDS = 5.0
_ASK_SECONDS = 2.0
_PAUSE_SECONDS = 0.3


class ReplayConnection:
    """The replay server, and the contract of the run.

    The tables of a run carry its id, so that nothing is ever written to or read from another run's
    server on the same port.

    Args:
      job: The one that connects.
      timeout_seconds: How long to wait for the replay job to be ready.

    Attributes:
      address: `host:port` of the Reverb server.
      client: Of the server.
      contract: What all jobs of the run agree on.
      has_league: Whether the actors play against a league, which the learner keeps.
      policies: Contracts of the policies that are trained beside `main`, by their names.

    Raises:
      errors.JobTimeoutError: If it is not ready in time.
    """

    def __init__(self, job: job_lib.Job, *, timeout_seconds: float = 180.0) -> None:
        self._job = job
        self._asked_at = 0.0
        self._is_away = False
        deadline = time.monotonic() + timeout_seconds
        self._peer = peer.Peer(job, "replay", timeout_seconds=timeout_seconds)
        try:
            self.address, self.contract = self._first_answer(deadline, timeout_seconds)
        except BaseException:
            self._peer.close()
            raise
        self.client = reverb.Client(self.address)

    @property
    def run_id(self) -> str:
        return self.contract["run id"]

    @property
    def num_lanes(self) -> int:
        """Lanes of each actor of the run."""
        return self.contract["lanes per actor"]

    @property
    def lanes_apart(self) -> bool:
        """Whether the lanes of an actor take steps of their own."""
        return self.contract["lanes apart"]

    @property
    def is_away(self) -> bool:
        """Whether the server did not answer the last request or write."""
        return self._is_away

    def make_model(self, experiment: experiment_lib.Experiment, seed: int) -> model_lib.Model:
        """Builds what is trained for the specs of the run, without an environment; checks it too.

        Args:
          experiment: What this job's configuration says.
          seed: Of the variables.

        Raises:
          errors.SpecMismatchError: If it does not fit the run's contract.
        """
        made = model_lib.Model(
            experiment,
            *contract_lib.specs_of(self.contract),
            self.num_lanes,
            run_id=self.run_id,
            seed=seed,
            lanes_apart=self.lanes_apart,
        )
        self.check(made)
        return made

    def make_policy_model(
        self, experiment: experiment_lib.Experiment, env: Any, policy: str, seed: int
    ) -> model_lib.Model:
        """Builds what is trained beside `main`, for the specs of the run, and checks it.

        Args:
          experiment: What this job's configuration says.
          env: A copy of the world, with any number of lanes, which says how the policy is trained.
          policy: Name of the policy.
          seed: Of the job.

        Raises:
          errors.ConfigError: If the run does not train such a policy.
          errors.SpecMismatchError: If it does not fit the run's contract.
        """
        contract = self._policy_contract(policy)
        if policy not in further_model.trained_policies(env):
            raise errors.SpecMismatchError(
                f"{self._job} does not fit the run, which trains the policy {policy!r}: no "
                "AgentSpec.agent is set for it here"
            )
        made = model_lib.Model(
            experiment.for_policy(env.spec_of(policy)),
            *contract_lib.specs_of(contract),
            contract["lanes per actor"],
            run_id=self.run_id,
            seed=seeds.of(seed, "policy", policy),
            lanes_apart=contract["lanes apart"],
            policy=policy,
            turn_ticks=contract[further_model.TURN_TICKS],
        )
        self.check_policy(made, policy)
        return made

    def check_policy(self, model: model_lib.Model, policy: str) -> None:
        """Checks that what this job has built for a further policy fits the run's contract.

        Raises:
          errors.ConfigError: If the run does not train such a policy.
          errors.SpecMismatchError: If it does not fit; names every difference.
        """
        contract = self._policy_contract(policy)
        ours = further_model.contract(model, self.run_id, contract[further_model.TURN_TICKS])
        contract_lib.require_same(ours, contract, f"{self._job}, policy {policy}")

    def _policy_contract(self, policy: str) -> contract_lib.Contract:
        if policy not in self.policies:
            raise errors.ConfigError(
                f"this run does not train a policy {policy!r} beside `main`; those that it does: "
                f"{', '.join(self.policies) or 'none'} (AgentSpec.agent)"
            )
        return self.policies[policy]

    def check(self, model: model_lib.Model) -> None:
        """Checks that what this job has built fits the run's contract.

        Raises:
          errors.SpecMismatchError: If it does not; names every difference.
        """
        contract_lib.require_same(model.contract(self.run_id), self.contract, str(self._job))

    def note_outage(self, error: errors.ReplayError) -> None:
        """Notes that the server does not answer, and logs it once per outage.

        Raises:
          errors.ReplayMovedError: If it has another address now.
        """
        if not self._is_away:
            logging.warning("%s waits: %s", self._job, error)
        self._is_away = True
        self._require_same_address()

    def is_there(self) -> bool:
        """Returns whether the server is there; after an outage asks it, which may take seconds.

        Raises:
          errors.ReplayMovedError: If it has another address now.
        """
        if not self._is_away:
            return True
        try:
            self.require_answer()
        except errors.ReplayTimeoutError as error:
            self.note_outage(error)
            return False
        self._is_away = False
        logging.info("%s: the replay server answers.", self._job)
        return True

    def give_up(self) -> None:
        """Notes that this job will not use the server again."""
        self._is_away = True

    def require_answer(self, timeout_seconds: float = _TRY_SECONDS) -> None:
        """Raises `errors.ReplayTimeoutError` unless the server answers."""
        reverb_calls.fetch_tables(self.client, timeout_seconds)

    def close(self) -> None:
        """Ends the wire to the replay job; safe to call twice."""
        self._peer.close()

    def _first_answer(
        self, deadline: float, timeout_seconds: float
    ) -> tuple[str, contract_lib.Contract]:
        while True:
            try:
                return self._ask()
            except (protocol.NoAnswerError, protocol.RefusedError) as error:
                # It has just been started, or has died and is being restarted.
                if time.monotonic() >= deadline:
                    raise errors.JobTimeoutError(
                        f"{self._job} has waited {timeout_seconds:g} s for the replay job to be "
                        f"ready: {error}"
                    ) from error
            if self._job.stopping.wait(_PAUSE_SECONDS):
                raise job_lib.Stopping(f"{self._job} was asked to end")
            self._peer.check()

    def _ask(self) -> tuple[str, contract_lib.Contract]:
        answer = self._peer.request(CONTRACT, timeout_seconds=_TRY_SECONDS).body
        self.has_league = bool(answer.get("league"))
        self.policies: dict[str, contract_lib.Contract] = answer.get("policies", {})
        return answer["address"], answer["contract"]

    def _require_same_address(self) -> None:
        """Asks, at most every two seconds, whether the server has another address now."""
        now = time.monotonic()
        if now - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = now
        self._peer.check()
        try:
            address, _ = self._ask()
        except (protocol.NoAnswerError, protocol.RefusedError):
            return  # It has not come back yet.
        if address != self.address:
            raise errors.ReplayMovedError(
                f"the replay server has moved from {self.address} to {address}: {self._job} must "
                "be restarted to find it"
            )
