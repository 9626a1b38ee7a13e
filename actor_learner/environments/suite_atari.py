"""Atari games by name, in the manner of TF-Agents' `suite_atari`. Needs the extra atari.

In gin files the functions are `suite_atari.load` and `suite_atari.game`:

suite_atari.load.gym_env_wrappers = (@AtariPreprocessing, @FrameStack4)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import gin
import gymnasium
import numpy as np
from tf_agents.environments import py_environment

from actor_learner.environments import (
    atari_preprocessing,
    atari_wrappers,
    making,
    specs,
    suite_gymnasium,
)
from actor_learner.support import errors, extras

DEFAULT_ATARI_GYM_WRAPPERS = (atari_preprocessing.AtariPreprocessing,)
DEFAULT_ATARI_GYM_WRAPPERS_WITH_STACKING = (
    *DEFAULT_ATARI_GYM_WRAPPERS,
    atari_wrappers.FrameStack4,
)

_MODES = ("", "NoFrameskip", "Deterministic")
_VERSIONS = ("v0", "v4")


@gin.configurable(module="suite_atari")
def game(
    name: str = "Pong", obs_type: str = "image", mode: str = "NoFrameskip", version: str = "v0"
) -> str:
    """The id of a game. Whether `ale_py` has it, `load` will tell: it has no `ram` any more.

    Args:
      name: Such as `Pong` or `SpaceInvaders`.
      obs_type: `image` or `ram`.
      mode: How many frames an action takes: `NoFrameskip` (one), `""` (two to four, at random) or
        `Deterministic`.
      version: `v0`, which repeats the last action with probability 0.25, or `v4`, which does not.

    Raises:
      errors.ConfigError: If an argument has none of these values.
    """
    for argument, value, known in (
        ("obs_type", obs_type, ("image", "ram")),
        ("mode", mode, _MODES),
        ("version", version, _VERSIONS),
    ):
        if value not in known:
            raise errors.ConfigError(
                f"suite_atari.game.{argument} is {value!r}; it must be "
                f"{' or '.join(map(repr, known))}"
            )
    return f"{name}{'-ram' if obs_type == 'ram' else ''}{mode}-{version}"


@gin.configurable(module="suite_atari")
def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[making.WrapperLike] = DEFAULT_ATARI_GYM_WRAPPERS,
    env_wrappers: Sequence[suite_gymnasium.PyEnvironmentWrapper] = (),
    spec_dtype_map: specs.DtypeMap | None = None,
) -> py_environment.PyEnvironment:
    """Makes one game and wraps it as an unbatched PyEnvironment.

    `PongNoFrameskip-v4` and `ALE/Pong-v5` are such names. `AtariPreprocessing` skips three of four
    frames: with an id that skips frames itself (`Pong-v0`, `ALE/Pong-v5`) both do.

    Args:
      environment_name: A Gymnasium id of `ale_py`.
      discount: The discount of steps that do not terminate.
      max_episode_steps: Steps of a game, over all its lives; None or 0: as many as it takes. In any
        case ALE truncates a game after 108,000 frames.
      gym_env_wrappers: Gymnasium wrappers, in order.
      env_wrappers: Wrappers of the resulting PyEnvironment, in order.
      spec_dtype_map: Dtypes to use instead of the spaces' own, by class of space; uint8 for `Box`
        by default.

    Raises:
      errors.ConfigError: If there is no such game (with the nearest ids).
      errors.MissingExtraError: If the extra is not installed.
    """
    gymnasium.register_envs(extras.require("ale_py", "atari"))
    gym_env, spec = suite_gymnasium.make_gym_env(environment_name)
    if max_episode_steps is None:
        max_episode_steps = spec.max_episode_steps
    return suite_gymnasium.wrap_env(
        gym_env,
        discount=discount,
        # Always: this wrapper is what begins the next game.
        max_episode_steps=max_episode_steps or sys.maxsize,
        gym_env_wrappers=gym_env_wrappers,
        time_limit_wrapper=atari_wrappers.AtariTimeLimit,
        env_wrappers=env_wrappers,
        spec_dtype_map=spec_dtype_map or {gymnasium.spaces.Box: np.uint8},
        auto_reset=False,
    )
