"""MuJoCo environments by name, in the manner of TF-Agents' `suite_mujoco`. Needs the extra mujoco.

In gin files the function is `suite_mujoco.load`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence

import gin
import gymnasium
import numpy as np
from tf_agents.environments import py_environment

from actor_learner.environments import making, specs, suite_gymnasium
from actor_learner.support import errors


def is_available() -> bool:
    """Whether MuJoCo is installed."""
    return importlib.util.find_spec("mujoco") is not None


@gin.configurable(module="suite_mujoco")
def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[making.WrapperLike] = (),
    env_wrappers: Sequence[suite_gymnasium.PyEnvironmentWrapper] = (),
    spec_dtype_map: specs.DtypeMap | None = None,
) -> py_environment.PyEnvironment:
    """Makes one environment; like `suite_gymnasium.load`, with float32 instead of float64.

    Args:
      environment_name: A Gymnasium id, such as `HalfCheetah-v5`.
      discount: The discount of steps that do not terminate.
      max_episode_steps: Time limit; None for the registered one, 0 for none.
      gym_env_wrappers: Gymnasium wrappers, in order.
      env_wrappers: Wrappers of the resulting PyEnvironment, in order.
      spec_dtype_map: Dtypes to use instead of the spaces' own, by class of space; float32 for
        `Box` by default.

    Raises:
      errors.ConfigError: If Gymnasium does not have the environment, or no longer in this version.
      errors.MissingExtraError: If the extra is not installed.
    """
    _refuse_old_version(environment_name)
    return suite_gymnasium.load(
        environment_name,
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=gym_env_wrappers,
        env_wrappers=env_wrappers,
        spec_dtype_map=spec_dtype_map or {gymnasium.spaces.Box: np.float32},
        gym_kwargs=None,
        render_kwargs=None,
    )


def _refuse_old_version(name: str) -> None:
    """Names what there is instead of the versions that needed `mujoco_py`."""
    match = re.fullmatch(r"(\w+)-v[123]", name)
    later = [f"{match[1]}-v{n}" for n in (4, 5)] if match else []
    later = [env_id for env_id in later if env_id in gymnasium.registry]
    if later:
        raise errors.ConfigError(
            f"environment {name!r} needs mujoco_py, which Gymnasium no longer supports: use "
            f"{' or '.join(later)}. Returns differ from one version to the next, so none is chosen "
            "for you"
        )
