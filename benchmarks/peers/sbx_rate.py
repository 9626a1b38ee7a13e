"""Environment steps per second that SBX (Stable-Baselines3 on JAX) trains one lane with.

python benchmarks/peers/sbx_rate.py dqn_each_step --steps=15000 --warm_up=5

Run by the Python of the peers' environment; prints one line of JSON: {"steps_per_second", "steps"}.
The rate is that from the first step after `warm_up` seconds of training to the last, so that
compiling does not count. Networks, batches and updates per step are those of our rows of the same
names in `benchmarks.turns`; all else is SBX's default.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Any, Callable

import sbx
import torch
from stable_baselines3.common import callbacks, env_util


@dataclasses.dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
      algorithm: Class of the model.
      env_id: What it learns.
      parameters: Of the model.
    """

    algorithm: Callable[..., Any]
    env_id: str
    parameters: dict[str, Any]


_DQN = {
    "batch_size": 64,
    "buffer_size": 100_000,
    "policy_kwargs": {"net_arch": [64, 64]},
}

CASES = {
    "dqn_each_step": Case(sbx.DQN, "CartPole-v1", {**_DQN, "train_freq": 1, "gradient_steps": 1}),
    "dqn_bursts": Case(sbx.DQN, "CartPole-v1", {**_DQN, "train_freq": 256, "gradient_steps": 128}),
    "sac_each_step": Case(
        sbx.SAC,
        "Pendulum-v1",
        {
            "batch_size": 256,
            "buffer_size": 100_000,
            "train_freq": 1,
            "gradient_steps": 1,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
}


class Clock(callbacks.BaseCallback):
    """Notes steps and time, at the first step after the warm-up and at the latest."""

    def __init__(self, warm_up: float) -> None:
        super().__init__()
        self._warm_up = warm_up
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] | None = None

    def _on_training_start(self) -> None:
        self._began = time.perf_counter()

    def _on_step(self) -> bool:
        now = (time.perf_counter(), self.num_timesteps)
        if self.first is None and now[0] - self._began >= self._warm_up:
            self.first = now
        self.last = now
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--steps", type=int, required=True, help="of training, in all")
    parser.add_argument("--warm_up", type=float, default=5.0, help="seconds that do not count")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    case = CASES[options.case]
    torch.set_num_threads(1)
    env = env_util.make_vec_env(case.env_id, n_envs=1, seed=options.seed)
    # Learning starts with the first step that can: what comes before is no training.
    model = case.algorithm(
        "MlpPolicy", env, seed=options.seed, learning_starts=300, **case.parameters
    )
    clock = Clock(options.warm_up)
    model.learn(options.steps, callback=clock)
    if clock.first is None or clock.last[1] == clock.first[1]:
        raise SystemExit(f"no steps after {options.warm_up:g} s: train for more --steps")
    (began, before), (ended, after) = clock.first, clock.last
    result = {"steps_per_second": (after - before) / (ended - began), "steps": after - before}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
