"""PyBullet environments by name, in the manner of TF-Agents' `suite_pybullet`.

Needs the package `pybullet_envs_gymnasium`, which registers the environments of the old
`pybullet_envs` with Gymnasium and is not among our extras. In gin files the function is
`suite_pybullet.load`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import gin
from tf_agents.environments import py_environment

from actor_learner.environments import making, specs, suite_gymnasium
from actor_learner.support import errors

_PACKAGE = "pybullet_envs_gymnasium"


# TF-Agents has taken the name `suite_pybullet.load` itself, where the old `pybullet_envs` is there.
@gin.configurable(module="actor_learner.suite_pybullet")
def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[making.WrapperLike] = (),
    env_wrappers: Sequence[suite_gymnasium.PyEnvironmentWrapper] = (),
    spec_dtype_map: specs.DtypeMap | None = None,
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
) -> py_environment.PyEnvironment:
    """Makes one environment, such as `HalfCheetahBulletEnv-v0`; as `suite_gymnasium.load`.

    Raises:
      errors.MissingExtraError: If the package is not installed.
    """
    try:
        importlib.import_module(_PACKAGE)
    except ModuleNotFoundError as error:
        raise errors.MissingExtraError(
            f"environment {environment_name!r} needs {_PACKAGE}: {error}; install it with pip "
            f"install {_PACKAGE}"
        ) from error
    return suite_gymnasium.load(
        environment_name,
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=gym_env_wrappers,
        env_wrappers=env_wrappers,
        spec_dtype_map=spec_dtype_map,
        gym_kwargs=gym_kwargs,
        render_kwargs=render_kwargs,
    )
