"""The settings of a league: how often a player joins it, and who is played."""

from __future__ import annotations

from collections.abc import Mapping

from actor_learner.league import sampling
from actor_learner.support import configurable, errors

_OPPONENTS = {sampling.LATEST: 0.5, sampling.UNIFORM: 0.5}


@configurable.register
class League:
    """Says whom a learner plays that is trained by self-play (`SelfPlay`).

    Args:
      interval: Environment steps after which the policy joins the league, as it is then: it is
        stored for good, tagged `league-1`, `league-2` and so on. The untrained policy is
        `league-0`. Each needs a file as large as the policy, and a checkpoint.
      opponents: Weights of the kinds of opponents. One is drawn for a quarter of the lanes, and
        plays two episodes in each of them. `latest` is the newest player of the league; `uniform`
        any, all alike; `prioritized` any, in proportion to `(1 - win rate) ** power`, the win rate
        being that of the learner against it; `random` moves at random; `tag:NAME` is the version of
        the run's parameters with that tag.
      power: See `prioritized`.
      max_players: How many players are played at most; of more, as many are chosen, evenly spread
        over the past. Every actor has all of them in memory.
    """

    def __init__(
        self,
        interval: int = 20_000,
        opponents: Mapping[str, float] | None = None,
        power: float = 2.0,
        max_players: int = 64,
    ) -> None:
        for name, value in (("interval", interval), ("max_players", max_players)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise errors.ConfigError(
                    f"League.{name} must be a whole number of at least 1, got {value!r}"
                )
        if not power >= 0:
            raise errors.ConfigError(f"League.power must be at least 0, got {power!r}")
        self.interval = interval
        self.opponents = sampling.check_mixture(_OPPONENTS if opponents is None else opponents)
        self.power = power
        self.max_players = max_players
