"""A Gymnasium wrapper for environments that say in their info which actions are legal.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

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
        if not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise errors.SpecMismatchError(
                f"MaskFromInfo needs Discrete actions, the environment has {env.action_space}"
            )
        inside = env.observation_space
        self._nested = isinstance(inside, gymnasium.spaces.Dict)
        parts = dict(inside.spaces) if self._nested else {"observation": inside}
        parts[KEY] = gymnasium.spaces.MultiBinary(int(env.action_space.n))
        self.observation_space = gymnasium.spaces.Dict(parts)

    def reset(self, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        return self._with_mask(observation, info), info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(observation, info), reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        if KEY not in info:
            raise errors.EnvironmentError(
                f"the info of {self.env} has no {KEY!r}, only {sorted(info)}: leave MaskFromInfo "
                "out, or have the environment say which actions are legal in every step"
            )
        parts = dict(observation) if self._nested else {"observation": observation}
        parts[KEY] = np.asarray(info[KEY]).astype(np.int8)
        return parts
