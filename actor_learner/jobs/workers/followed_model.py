"""An actor's copy of what a learner trains: kept as new as the learner's news say."""

from __future__ import annotations

from actor_learner import experiment as experiment_lib
from actor_learner import run_settings
from actor_learner.jobs.exchange import follower as follower_lib
from actor_learner.jobs.exchange import reports as reports_lib
from actor_learner.runs import model as model_lib
from actor_learner.support import counters

_FRESH_POLICY_SECONDS = 0.25


class FollowedModel:
    """Applies a learner's policy and counts to an actor's model, between turns.

    Args:
      experiment: Says how old a policy may be.
      model: The actor's.
      follower: Of the learner; it has the model's published variables.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        model: model_lib.Model,
        follower: follower_lib.Follower,
    ) -> None:
        self._staleness = experiment.staleness
        self._model = model
        self._follower = follower
        self._environment_step = 0  # The value of the model's variable.
        self._share = (0, 1)

    def count(self, steps: int) -> None:
        """Notes that the acting side has taken steps, and has added them to the model's counter."""
        self._environment_step += steps

    def hear(self, share: tuple[int, int]) -> None:
        """Applies what has come since the last turn.

        Args:
          share: The rank of this actor among all, and their number.
        """
        if self._follower.apply():
            counters.assign(self._model.train_step, self._follower.version)
        # The learner counts the steps of all actors, but learns of the latest a little later.
        news = self._follower.news
        if news is not None and news.environment_step > self._environment_step:
            self._environment_step = news.environment_step
            counters.assign(self._model.environment_step, news.environment_step)
        if share != self._share and self._model.algorithm.share_lanes is not None:
            rank, num_actors = share
            num_lanes = self._model.plan.num_lanes
            self._model.algorithm.share_lanes(rank * num_lanes, num_actors * num_lanes)
        self._share = share

    def refresh(self) -> None:
        """Asks for a newer policy, if there is one; waits where unrolls are used only once."""
        if self._follower.is_current:
            return
        self._follower.pull()
        if self._model.plan.group_steps is not None:
            self._follower.apply(_FRESH_POLICY_SECONDS)
            counters.assign(self._model.train_step, self._follower.version)

    def must_wait(self, reports: reports_lib.ReportSender) -> bool:
        """Whether the learner must train, or publish, before the next turn."""
        if reports.steps_left() <= 0:
            return True
        most, lag = self._staleness.max_version_lag, self._follower.lag
        waits = self._staleness.when_lagging == run_settings.WAIT
        return waits and most is not None and lag is not None and lag > most
