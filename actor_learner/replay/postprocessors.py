"""What becomes of an episode before it is sent: returns and advantages; `Collecting` names them.

```
Collecting.postprocessors = [@discounted_return]
discounted_return.gamma = 0.95
```

One of a user's own takes an episode as these do (see `whole_episodes.Postprocessor`), registered
with `@gin.configurable`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.support import configurable, errors

Trajectory = trajectory_lib.Trajectory

RETURN, ADVANTAGE, N_STEP_RETURN = "return", "advantage", "n_step_return"
"""Fields of `policy_info`, float32, that are added."""

REWARD = "reward"


@configurable.register
def discounted_return(
    episode: Trajectory, *, gamma: float = 0.99, value: str | None = None, into: str = RETURN
) -> Trajectory:
    """Adds `policy_info["return"]`: the discounted rewards from each step to the episode's end.

    Args:
      episode: Leaves `[T + 1, ...]`.
      gamma: Discount factor, besides the environment's discounts.
      value: Field of `policy_info` with the values of observations, of which that of the final one
        counts where the episode was truncated. None: what comes after is 0.
      into: Name of the field; `"reward"` puts it in the place of the reward, and discounts become
        0: an agent such as `dqn` then learns what returns were.
    """
    following = 0.0 if value is None else float(_values(episode, value)[-1])
    returns = np.zeros(len(episode.reward), np.float32)
    for row in reversed(range(len(returns) - 1)):
        following = episode.reward[row] + gamma * episode.discount[row] * following
        returns[row] = following
    if into == REWARD:
        return episode._replace(reward=returns, discount=np.zeros_like(episode.discount))
    return _with_info(episode, **{into: returns})


@configurable.register
def n_step_return(
    episode: Trajectory, *, n: int = 5, gamma: float = 0.99, value: str = "value"
) -> Trajectory:
    """Adds `policy_info["n_step_return"]`: `n` discounted rewards, and the value of what follows.

    Near the episode's end they are fewer.

    Args:
      episode: Leaves `[T + 1, ...]`.
      n: Rewards of a return.
      gamma: Discount factor, besides the environment's discounts.
      value: Field of `policy_info` with the values of observations.
    """
    if n != int(n) or n < 1:
        raise errors.ConfigError(f"n_step_return.n must be a whole number, 1 or more, got {n!r}")
    num_steps = len(episode.reward) - 1
    values = _values(episode, value)
    returns = np.zeros(num_steps + 1, np.float32)
    for row in range(num_steps):
        end = min(row + n, num_steps)
        following = values[end]
        for later in reversed(range(row, end)):
            following = episode.reward[later] + gamma * episode.discount[later] * following
        returns[row] = following
    return _with_info(episode, **{N_STEP_RETURN: returns})


@configurable.register
def gae(
    episode: Trajectory, *, gamma: float = 0.99, lambda_: float = 0.95, value: str = "value"
) -> Trajectory:
    """Adds `policy_info["advantage"]` and `["return"]`: generalised advantage estimation.

    Args:
      episode: Leaves `[T + 1, ...]`.
      gamma: Discount factor, besides the environment's discounts.
      lambda_: 0 trusts the values, 1 the rewards.
      value: Field of `policy_info` with the values of observations.
    """
    values = _values(episode, value)
    advantages = np.zeros(len(episode.reward), np.float32)
    following = 0.0
    for row in reversed(range(len(advantages) - 1)):
        factor = gamma * episode.discount[row]
        error = episode.reward[row] + factor * values[row + 1] - values[row]
        following = error + lambda_ * factor * following
        advantages[row] = following
    returns = (advantages + values).astype(np.float32)
    returns[-1] = 0.0
    return _with_info(episode, **{ADVANTAGE: advantages, RETURN: returns})


def _values(episode: Trajectory, name: str) -> np.ndarray:
    """The values of all observations of an episode, `[T + 1]`."""
    info = episode.policy_info
    if not isinstance(info, dict) or name not in info:
        there = sorted(info) if isinstance(info, dict) else "nothing"
        raise errors.ConfigError(
            f"a postprocessor wants values of observations in policy_info[{name!r}], but what the "
            f"collect policy says of its actions is {there}: name another field with its argument "
            "`value`, or use discounted_return, which can do without"
        )
    return np.asarray(info[name], np.float32)


def _with_info(episode: Trajectory, **fields: Any) -> Trajectory:
    info = episode.policy_info
    if not isinstance(info, dict) and info != ():
        raise errors.ConfigError(
            f"a postprocessor adds {', '.join(fields)} to policy_info, which is a "
            f"{type(info).__name__}: it must be a dictionary, or empty"
        )
    return episode._replace(policy_info={**(info or {}), **fields})
