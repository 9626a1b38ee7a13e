"""EnvPool's C++ thread pools as a Gymnasium vector environment (extra `envpool`)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import utils

from actor_learner.environments import making
from actor_learner.support import errors, extras

_NO_LIMIT = int(np.iinfo(np.int32).max)


class EnvPoolVectorEnv(gymnasium.vector.VectorEnv):
    """An EnvPool whose lanes reset on the step after they end, as in AutoresetMode.NEXT_STEP.

    EnvPool fixes seeds when the pool is made, so `reset(seed=...)` makes a new pool. Arrays it
    returns are not written again.
    """

    def __init__(
        self,
        task_id: str,
        num_envs: int,
        *,
        make_kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
    ):
        """Looks the task up; the pool itself is made by the first `reset`.

        Args:
          task_id: EnvPool's name of the task, such as "Pong-v5".
          num_envs: Number of lanes.
          make_kwargs: Further options of `envpool.make`.
          max_episode_steps: Time limit; None for EnvPool's own, 0 for none.

        Raises:
          errors.MissingExtraError: If EnvPool is not installed.
          errors.ConfigError: If EnvPool does not know the task or an option.
        """
        self._envpool = extras.require("envpool", "envpool")
        self._task_id = task_id
        self._kwargs = dict(make_kwargs or {}, num_envs=num_envs)
        if max_episode_steps is not None:
            self._kwargs["max_episode_steps"] = max_episode_steps or _NO_LIMIT
        known = self._envpool.list_all_envs()
        if task_id not in known:
            near = difflib.get_close_matches(task_id, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "see envpool.list_all_envs()"
            raise errors.ConfigError(f"{task_id}: {hint} (EnvPool does not have this task)")
        with making.quiet_gymnasium(), making.explained(task_id, None):
            spec_kwargs = {k: v for k, v in self._kwargs.items() if k != "render_mode"}
            spec = self._envpool.make_spec(task_id, **spec_kwargs)
            self.single_observation_space = _as_space(spec.gymnasium_observation_space)
            self.single_action_space = _as_space(spec.gymnasium_action_space)
        self.num_envs = num_envs
        self.observation_space = utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = utils.batch_space(self.single_action_space, num_envs)
        self.render_mode = self._kwargs.get("render_mode")
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self._pool: Any = None

    def reset(
        self, *, seed: Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all lanes. `seed` has one seed per lane."""
        if options is not None:
            raise errors.ConfigError(f"EnvPool takes no reset options, got {options!r}")
        if seed is not None or self._pool is None:
            self._make_pool(seed)
        return self._pool.reset()

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all lanes. A wrong number of actions would abort the process: check before."""
        return self._pool.step(actions)

    def render(self) -> tuple[Any, ...]:
        """Returns the frame of lane 0 only."""
        return tuple(self._pool.render(env_ids=0))

    def close_extras(self, **kwargs: Any) -> None:
        """Drops the pool; its threads end with it."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _make_pool(self, seed: Sequence[int] | None) -> None:
        kwargs = dict(self._kwargs)
        if seed is not None:
            kwargs["seed"] = [int(lane_seed) >> 1 for lane_seed in seed]  # EnvPool's are int32.
        elif "seed" not in kwargs:
            # EnvPool's own default is the same seed every time.
            kwargs["seed"] = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
        self.close_extras()
        with making.quiet_gymnasium(), making.explained(self._task_id, None):
            self._pool = self._envpool.make(self._task_id, env_type="gymnasium", **kwargs)
        mode = self._pool.metadata.get("autoreset_mode")
        if mode is not gymnasium.vector.AutoresetMode.NEXT_STEP:
            raise errors.ConfigError(
                f"EnvPool {self._task_id}: autoreset mode {mode}, but only NEXT_STEP keeps the "
                "final observations; EnvPool 1.2.5 has it"
            )


def _as_space(space: Any) -> gymnasium.Space:
    if isinstance(space, Mapping) and not isinstance(space, gymnasium.Space):
        return gymnasium.spaces.Dict({key: _as_space(child) for key, child in space.items()})
    return space
