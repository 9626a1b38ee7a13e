"""The settings of evaluation: when, over how many episodes, and in which environment."""

from __future__ import annotations

from typing import Callable

from tf_agents.environments import py_environment

from actor_learner.support import configurable, errors


@configurable.register
class Evaluation:
    """Says how the greedy policy is rated while it is trained.

    Each evaluation of a run plays the same episodes, so that two policies differ by what they do
    and not by where they begin. The policy with the highest mean return on these is the best one.
    Whenever there is a new best policy, or a target seems to be reached, the policy is rated once
    more, on as many episodes that no evaluation has used before. This second score is the one that
    is shown, and the only one that a target is reached by: the first one chose the policy, and is
    too high by the luck that made it the highest. An evaluation may so take twice its time.

    Args:
      interval: Environment steps between evaluations; 0 evaluates only at the end. Where all
        experience is recorded, train steps.
      episodes: Episodes per evaluation. In one process training waits while they run.
      lanes: Lanes they run in; None is one per episode.
      target_return: Training ends when the mean return reaches this, and a second evaluation on
        other episodes confirms it.
      environment: Makes the environment to evaluate in, as `Experiment.environment` does; None is
        that one. For true scores where training clips rewards, ends episodes early or shapes
        rewards. In a gin file a scope changes single arguments: `@evaluation/GymnasiumEnvironment`
        has all bindings of `GymnasiumEnvironment`, but for those of
        `evaluation/GymnasiumEnvironment`. Its observations and actions must have the specs of the
        environment that is trained in.
    """

    def __init__(
        self,
        interval: int = 5_000,
        episodes: int = 20,
        lanes: int | None = None,
        target_return: float | None = None,
        environment: Callable[..., py_environment.PyEnvironment] | None = None,
    ) -> None:
        for name, value, least in (
            ("interval", interval, 0),
            ("episodes", episodes, 1),
            ("lanes", lanes, 1),
        ):
            if value is not None and value < least:
                raise errors.ConfigError(f"Evaluation.{name} must be at least {least}, got {value}")
        self.interval = interval
        self.episodes = episodes
        self.lanes = lanes or episodes
        self.target_return = target_return
        self.environment = environment
