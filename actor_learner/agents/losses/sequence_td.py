"""TD errors of sequences, and priorities from them: one definition for actor and learner.

The actor computes the priorities of new sequences in NumPy, from the values that its policy noted
while it acted; the learner computes errors in TensorFlow, from the values of its networks. Both run
the same lines: arguments named `xp` are the library of the arrays, `numpy` or `tensorflow`.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from actor_learner.agents.losses import value_rescaling
from actor_learner.support import errors


@dataclasses.dataclass(frozen=True)
class SequenceTd:
    """How values, rewards and the ends of episodes make TD errors of the rows of a sequence.

    All values are in the units of the network: rescaled, if `rescaling` is on.

    Attributes:
      n_step: Steps of rewards before the value of a later row is used. Where the sequence or the
        episode ends earlier, fewer.
      gamma: Discount factor.
      burn_in: Rows at the start of a sequence that only bring the network's state up to date. A
        sequence that begins an episode has no need of them and is learned from its first row on.
      rescaling: Whether the network's values are `h(return)` (`value_rescaling`) or returns.
      max_share: The priority of a sequence is `max_share * max |error| + (1 - max_share) * mean
        |error|` over the rows learned from.
      rescaling_epsilon: The slope that `h` keeps for large returns, 0 or more.
    """

    n_step: int = 5
    gamma: float = 0.997
    burn_in: int = 20
    rescaling: bool = True
    max_share: float = 0.9
    rescaling_epsilon: float = value_rescaling.EPSILON

    def __post_init__(self) -> None:
        if self.n_step < 1:
            raise errors.ConfigError(f"n_step must be at least 1, got {self.n_step}")
        if self.burn_in < 0:
            raise errors.ConfigError(f"burn_in must be 0 or more, got {self.burn_in}")
        if not 0.0 <= self.max_share <= 1.0:
            raise errors.ConfigError(f"max_share must lie in [0, 1], got {self.max_share}")
        if self.rescaling_epsilon < 0:
            raise errors.ConfigError(
                f"rescaling_epsilon must be 0 or more, got {self.rescaling_epsilon}: large values "
                "would be rescaled to ever smaller ones"
            )

    def learned(self, xp: types.ModuleType, step_type: Any, mask: Any) -> Any:
        """Which rows are learned from: 1 or 0, like `mask`.

        Not those of burn-in, nor rows that lead to no other: the LAST step of an episode, the last
        row of the sequence (the next sequence has it further in front), and filled up ones.

        Args:
          xp: `numpy` or `tensorflow`.
          step_type: `[batch, L]` integers.
          mask: `[batch, L]` float32, 1 for real rows.
        """
        leaving = _leaving(xp, step_type, mask)
        after_burn_in = np.arange(step_type.shape[1])[np.newaxis] >= self.burn_in  # [1, L]
        begins_episode = step_type[:, :1] == ts.StepType.FIRST  # [batch, 1]
        return xp.where(begins_episode | after_burn_in, leaving, xp.zeros_like(leaving))

    def targets(
        self,
        xp: types.ModuleType,
        reward: Any,
        discount: Any,
        step_type: Any,
        mask: Any,
        value: Any,
    ) -> Any:
        """The values that rows learned from should have.

        With m <= n_step the number of steps from row t until the LAST step or the sequence's last
        row, whichever comes first, r and d the rewards and discounts of rows, and v the value:

            factor_k = g^k d_t ... d_{t+k-1}
            target_t = h( sum_{k<m} factor_k r_{t+k}  +  factor_m h^-1(v_{t+m}) )

        An episode that terminated has d = 0 and takes no value from its LAST row; one that was
        truncated has d = 1 there and takes that of its true final observation.

        Args:
          xp: `numpy` or `tensorflow`.
          reward: `[batch, L]`, of the step that leaves each row.
          discount: `[batch, L]`.
          step_type: `[batch, L]` integers.
          mask: `[batch, L]` float32, 1 for real rows.
          value: `[batch, L]`, the value of being in each row.

        Returns:
          `[batch, L]`; rows that are not learned from hold numbers without a meaning.
        """
        length, steps = step_type.shape[1], self.n_step
        if self.rescaling:
            value = value_rescaling.inverse(xp, value, self.rescaling_epsilon)
        stacked = xp.stack([reward, discount, _leaving(xp, step_type, mask), value])
        padded = xp.pad(stacked, [[0, 0], [0, 0], [0, steps]])  # [4, batch, L + steps]
        factor = xp.ones_like(reward)
        total = xp.zeros_like(reward)
        bootstrap = value
        running = xp.ones_like(mask) > 0
        for k in range(steps):
            ahead = padded[:, :, k : k + length]  # Row t holds what belongs to row t + k.
            running = running & (ahead[2] > 0)
            total = xp.where(running, total + factor * ahead[0], total)
            factor = xp.where(running, factor * self.gamma * ahead[1], factor)
            bootstrap = xp.where(running, padded[3, :, k + 1 : k + 1 + length], bootstrap)
        target = total + factor * bootstrap
        if not self.rescaling:
            return target
        return value_rescaling.rescale(xp, target, self.rescaling_epsilon)

    def priorities(self, xp: types.ModuleType, error: Any, learned: Any) -> Any:
        """Priorities `[batch]` of sequences; 0 for those with nothing to learn from.

        Args:
          xp: `numpy` or `tensorflow`.
          error: `[batch, L]`.
          learned: `[batch, L]`, from `learned`.
        """
        maximum, total = (xp.reduce_max, xp.reduce_sum) if xp is tf else (xp.max, xp.sum)
        absolute = xp.abs(error) * learned
        count = xp.maximum(total(learned, axis=1), 1.0)
        mean = total(absolute, axis=1) / count
        return self.max_share * maximum(absolute, axis=1) + (1.0 - self.max_share) * mean


def _leaving(xp: types.ModuleType, step_type: Any, mask: Any) -> Any:
    """Rows that are left by a step to the next row, inside the sequence: 1 or 0."""
    length = step_type.shape[1]
    has_next = np.arange(length)[np.newaxis] < length - 1  # [1, L]
    leaving = (mask > 0) & (step_type != ts.StepType.LAST) & has_next
    return xp.where(leaving, mask, xp.zeros_like(mask))
