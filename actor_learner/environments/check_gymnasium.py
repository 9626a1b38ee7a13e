"""The checks of a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from actor_learner.environments import check_values, seeding, specs
from actor_learner.support import errors

_MAX_EXCEPTIONS = 5
_REPRODUCED_STEPS = 50
_UNSEEDED_RESETS = 5


def check(
    envs: Sequence[gymnasium.Env],
    findings: check_values.Findings,
    *,
    num_steps: int,
    num_seeds: int,
    seed: int,
) -> None:
    """Adds the violations of `envs` (lanes of the same environment) to `findings`."""
    env = envs[0]
    for kind in ("observation_space", "action_space"):
        for lane, other in enumerate(envs):
            if getattr(other, kind) != getattr(env, kind):
                findings.add(
                    ("lanes", kind),
                    f"lane {lane} has {kind} {getattr(other, kind)}, lane 0 has "
                    f"{getattr(env, kind)}: all lanes must have the same",
                )
    observation_spec = _spec(env.observation_space, "observation", findings)
    _spec(env.action_space, "action", findings)
    env.action_space.seed(seed)
    stepper = _Stepper(env, observation_spec, findings)
    stepper.run(num_steps, seed)
    if not stepper.broken and not stepper.needs_more_resets:
        _check_reproducible(env, findings, seed)
        _check_seeds_matter(envs, findings, seeding.lane_seeds(seed, max(1, num_seeds)))


class _Stepper:
    """Steps one environment through its episodes and looks at everything it returns."""

    def __init__(self, env: gymnasium.Env, observation_spec: Any, findings: check_values.Findings):
        self.broken = False  # Whether stepping had to be given up.
        self.needs_more_resets = False  # Whether one reset() does not begin an episode.
        self._env = env
        self._observation_spec = observation_spec
        self._findings = findings
        self._memory = check_values.Memory(())

    def run(self, num_steps: int, seed: int) -> None:
        self._reset("the first reset", seed=seed)
        fresh, second_reset, exceptions = True, False, 0
        for step in range(1, num_steps + 1):
            if self.broken:
                return
            where = f"step {step}"
            action = self._env.action_space.sample()
            given = check_values.Memory(action)
            try:
                result = self._env.step(action)
            except Exception as error:
                if fresh and not second_reset:
                    # Perhaps one reset was not enough: this tells it from a step that always fails.
                    second_reset = True
                    self._reset(f"the second reset before step {step}")
                    continue
                exceptions += 1
                self._findings.add(
                    ("step", type(error)),
                    f"step() raised {type(error).__name__}: {error} ({where}, action {action!r})",
                )
                if exceptions == _MAX_EXCEPTIONS:
                    self.broken = True
                    return
                self._reset(f"the reset after step {step} raised")
                fresh, second_reset = True, False
                continue
            if second_reset:
                self.needs_more_resets = True
                self._findings.add(
                    "resets",
                    "step() after reset() raised, but worked after a second reset(): one reset() "
                    f"must be enough to begin an episode ({where})",
                )
            fresh, second_reset = False, False
            if given.changed():
                self._findings.add("action", f"step() writes into the action it is given ({where})")
            if self._check_step(result, where):
                self._reset(f"the reset after step {step}")
                fresh = True

    def _reset(self, where: str, seed: int | None = None) -> None:
        try:
            result = self._env.reset() if seed is None else self._env.reset(seed=seed)
        except Exception as error:
            self.broken = True
            call = "reset()" if seed is None else f"reset(seed={seed})"
            self._findings.add(
                ("reset", type(error)),
                f"{call} raised {type(error).__name__}: {error} ({where})",
            )
            return
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            self.broken = True
            self._findings.add(
                "reset result",
                f"reset() returned a {_outline(result)}, not (observation, info dict) ({where})",
            )
            return
        self._check_observation(result[0], where)

    def _check_step(self, result: Any, where: str) -> bool:
        """Returns whether the episode is over."""
        if not isinstance(result, tuple) or len(result) != 5:
            self.broken = True
            self._findings.add(
                "step result",
                f"step() returned a {_outline(result)}, not (observation, reward, terminated, "
                f"truncated, info); four values are the API of old Gym ({where})",
            )
            return False
        observation, reward, terminated, truncated, info = result
        self._check_observation(observation, where)
        self._check_reward(reward, where)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, (bool, np.bool_)):
                self._findings.add(
                    (name, type(flag)),
                    f"{name} is {flag!r}, a {_outline(flag)}, not bool ({where})",
                )
        if not isinstance(info, dict):
            self._findings.add("info", f"info is a {_outline(info)}, not a dict ({where})")
        return bool(np.any(terminated)) or bool(np.any(truncated))

    def _check_observation(self, observation: Any, where: str) -> None:
        if self._memory.changed():
            self._findings.add(
                "aliasing",
                "the arrays of an observation are written again after it was returned: return a "
                f"copy, or earlier observations change ({where})",
            )
        self._memory = check_values.Memory(observation)
        if self._observation_spec is None:
            if not self._env.observation_space.contains(observation):
                self._findings.add(
                    "contains", f"the observation is not in its space: {observation!r} ({where})"
                )
            return
        check_values.check_nest(
            self._observation_spec, observation, "observation", self._findings, where=where
        )

    def _check_reward(self, reward: Any, where: str) -> None:
        try:
            array = np.asarray(reward, dtype=np.float64)
        except (TypeError, ValueError):
            self._findings.add("reward", f"reward is {reward!r}, not a number ({where})")
            return
        if array.shape != ():
            self._findings.add(
                "reward", f"reward has shape {array.shape}, it must be a single number ({where})"
            )
        if not np.all(np.isfinite(array)):
            self._findings.add("reward finite", f"reward is {reward!r} ({where})")


def _check_reproducible(env: gymnasium.Env, findings: check_values.Findings, seed: int) -> None:
    if env.spec is not None and env.spec.nondeterministic:
        return
    env.action_space.seed(seed)
    actions = [env.action_space.sample() for _ in range(_REPRODUCED_STEPS)]
    first, second = (_rollout(env, findings, seed, actions) for _ in range(2))
    if first is None or second is None:
        return
    for step, (one, other) in enumerate(zip(first, second)):
        if not check_values.same(one, other):
            moment = "the first observation" if step == 0 else f"step {step}"
            findings.add(
                "reproducible",
                f"reset(seed={seed}) and the same actions gave something else the second time, "
                f"from {moment} on: use self.np_random, seeded by super().reset(seed=seed)",
            )
            return


def _rollout(
    env: gymnasium.Env, findings: check_values.Findings, seed: int, actions: Sequence[Any]
) -> list[Any] | None:
    """Returns what happened, or None if something raised (which is added to `findings`)."""
    try:
        observation, _ = env.reset(seed=seed)
        outcomes: list[Any] = [_copied(observation)]
        for action in actions:
            observation, reward, terminated, truncated, _ = env.step(action)
            outcomes.append((_copied(observation), reward, terminated, truncated))
            if terminated or truncated:
                observation, _ = env.reset()
                outcomes.append(_copied(observation))
    except Exception as error:
        findings.add(
            ("step", type(error)),
            f"{type(error).__name__} after reset(seed={seed}): {error}",
        )
        return None
    return outcomes


def _check_seeds_matter(
    envs: Sequence[gymnasium.Env], findings: check_values.Findings, seeds: Sequence[int]
) -> None:
    if len(seeds) < 2:
        return
    try:
        seeded = [
            _copied(envs[lane % len(envs)].reset(seed=lane_seed)[0])
            for lane, lane_seed in enumerate(seeds)
        ]
        unseeded = [_copied(envs[0].reset()[0]) for _ in range(_UNSEEDED_RESETS)]
    except Exception as error:
        findings.add(
            ("reset", type(error)),
            f"reset() raised {type(error).__name__}: {error} (seeds {list(seeds)})",
        )
        return
    alike = all(check_values.same(seeded[0], other) for other in seeded[1:])
    varied_start = any(not check_values.same(unseeded[0], other) for other in unseeded[1:])
    if alike and varied_start:
        findings.add(
            "seeds",
            f"note: {len(seeds)} lanes with distinct seeds began with the same observation, though "
            "unseeded resets differ from one another: reset(seed=...) may not reach the randomness",
        )


def _spec(space: gymnasium.Space, name: str, findings: check_values.Findings) -> Any:
    try:
        return specs.space_to_spec(space, name)
    except errors.SpecMismatchError as error:
        findings.add(("space", name), str(error))
        return None


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(child) for key, child in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(_copied(child) for child in value)
    return value.copy() if isinstance(value, np.ndarray) else value


def _outline(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {len(value)} values"
    return type(value).__name__
