"""A Gymnasium wrapper for environments that say in their info which actions are legal.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from actor_learner.support import errors

KEY = "action_mask"


class MaskFromInfo(gymnasium.Wrapper):
    """Puts `info["action_mask"]` beside the observation, where agents look for it.

    Observations become `{"observation": ..., "action_mask": ...}`; those that are dictionaries get
    a further key. Name it in gin:

    ```
    GymnasiumEnvironment.wrappers = ['actor_learner.environments.mask_from_info:MaskFromInfo']
    ```

    Args:
      env: Has Discrete actions, and `action_mask` in the info of `reset` and `step`: `[n]`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = space_with_mask(env.observation_space, env.action_space)

    def reset(self, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        return beside(observation, info, str(self.env)), info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return beside(observation, info, str(self.env)), reward, terminated, truncated, info


def space_with_mask(
    observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> gymnasium.spaces.Dict:
    """The space of observations with their mask beside them.

    Raises:
      errors.SpecMismatchError: If actions are not Discrete.
    """
    if not isinstance(action_space, gymnasium.spaces.Discrete):
        raise errors.SpecMismatchError(
            f"a mask in the info needs Discrete actions, the environment has {action_space}"
        )
    nested = isinstance(observation_space, gymnasium.spaces.Dict)
    parts = dict(observation_space.spaces) if nested else {"observation": observation_space}
    parts[KEY] = gymnasium.spaces.MultiBinary(int(action_space.n))
    return gymnasium.spaces.Dict(parts)


def beside(observation: Any, info: dict[str, Any], name: str) -> dict[str, Any]:
    """An observation of `space_with_mask`.

    Args:
      observation: As the environment gives it.
      info: Has the mask.
      name: Of the environment, for errors.

    Raises:
      errors.EnvironmentError: If there is no mask.
    """
    if KEY not in info:
        raise errors.EnvironmentError(
            f"the info of {name} has no {KEY!r}, only {sorted(info)}: do not look for a mask "
            "there, or have the environment say which actions are legal in every step"
        )
    parts = dict(observation) if isinstance(observation, Mapping) else {"observation": observation}
    parts[KEY] = np.asarray(info[KEY]).astype(np.int8)
    return parts
