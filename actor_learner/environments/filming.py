"""An environment that can be filmed, in place of one whose lanes cannot draw.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

_ATARI_LANES = "ale_py.vector_env:AtariVectorEnv"
# What ALE's lanes take besides the arguments of a single game, with their defaults.
_ATARI_DEFAULTS = {
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "stack_num": 4,
    "frameskip": 4,
    "maxpool": True,
    "noop_max": 30,
    "episodic_life": False,
    "life_loss_info": False,
    "reward_clipping": True,
    "use_fire_reset": True,
}
_OF_LANES_ONLY = ("batch_size", "num_threads", "thread_affinity_offset", "autoreset_mode")


class FireOnReset(gymnasium.Wrapper):
    """Takes the action that starts a game, as ALE's lanes do, where there is one."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        if "FIRE" in self.env.unwrapped.get_action_meanings():
            fire = self.env.unwrapped.get_action_meanings().index("FIRE")
            observation, _, _, _, info = self.env.step(fire)
        return observation, info


def arguments(spec: gymnasium.envs.registration.EnvSpec | None) -> dict[str, Any]:
    """Arguments with which a `GymnasiumEnvironment` has one lane that can be filmed.

    Args:
      spec: Of the vector environment that it has otherwise; None if it has none.
    """
    found: dict[str, Any] = {"num_envs": 1, "vectorization": "sync", "render_mode": "rgb_array"}
    if spec is not None and spec.vector_entry_point == _ATARI_LANES:
        found.update(_atari(spec.kwargs))
    return found


def _atari(given: Mapping[str, Any]) -> dict[str, Any]:
    """A single game that is preprocessed as ALE's lanes are: the observations are the same."""
    lanes = {name: given.get(name, default) for name, default in _ATARI_DEFAULTS.items()}
    game = {
        name: value
        for name, value in given.items()
        if name not in _ATARI_DEFAULTS
        and name not in _OF_LANES_ONLY
        and name not in ("game", "vectorization_mode")
    }
    wrappers: list[Any] = [FireOnReset] if lanes["use_fire_reset"] else []
    wrappers += [
        (
            "AtariPreprocessing",
            {
                "noop_max": lanes["noop_max"],
                "frame_skip": lanes["frameskip"],
                "screen_size": (lanes["img_width"], lanes["img_height"]),
                "terminal_on_life_loss": lanes["episodic_life"],
                "grayscale_obs": lanes["grayscale"],
            },
        ),
        (
            "FrameStackObservation",
            {"stack_size": lanes["stack_num"], "padding_type": "zero"},
        ),
    ]
    if lanes["reward_clipping"]:
        wrappers.append(("ClipReward", {"min_reward": -1.0, "max_reward": 1.0}))
    return {"make_kwargs": {**game, "frameskip": 1}, "wrappers": wrappers}
