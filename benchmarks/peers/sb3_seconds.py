"""Seconds that Stable-Baselines3 trains until 20 greedy episodes reach a mean return.

python benchmarks/peers/sb3_seconds.py dqn_cartpole --target=475 --interval=2000 --seed=0

Run by the Python of the peers' environment; prints one line of JSON: {"seconds", "reached",
"environment_steps", "best_return"}. Parameters are those of RL Baselines3 Zoo, but for the layers
and the batch that `--network=64,64` and `--batch_size=128` name. The clock runs as ours does: from
the first environment step, evaluations included, and these are made in one batch of lanes as ours
are. Where the target is never reached, `seconds` are those of all training.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Any, Callable

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common import callbacks, env_util

EVALUATION_EPISODES = 20
EVALUATION_SEED = 1_000_003


@dataclasses.dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
      algorithm: Class of the model.
      env_id: What it learns.
      steps: Environment steps, at most.
      num_envs: Lanes.
      parameters: Of the model.
    """

    algorithm: Callable[..., Any]
    env_id: str
    steps: int
    num_envs: int
    parameters: dict[str, Any]


CASES = {
    "dqn_cartpole": Case(
        stable_baselines3.DQN,
        "CartPole-v1",
        steps=100_000,
        num_envs=1,
        parameters={
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            # Of twice as many steps as in the Zoo, where it is 0.16 of 50,000.
            "exploration_fraction": 0.08,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "ppo_cartpole": Case(
        stable_baselines3.PPO,
        "CartPole-v1",
        steps=100_000,
        num_envs=8,
        parameters={
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": lambda remaining: 1e-3 * remaining,
            "clip_range": lambda remaining: 0.2 * remaining,
        },
    ),
    "sac_pendulum": Case(
        stable_baselines3.SAC,
        "Pendulum-v1",
        steps=20_000,
        num_envs=1,
        parameters={"learning_rate": 1e-3},
    ),
}


class Clock(callbacks.BaseCallback):
    """Evaluates every `interval` steps, and ends training at `target`."""

    def __init__(self, env_id: str, target: float, interval: int) -> None:
        super().__init__()
        self._env = env_util.make_vec_env(env_id, n_envs=EVALUATION_EPISODES, seed=EVALUATION_SEED)
        self._target = target
        self._interval = interval
        self._next = interval
        self.reached = False
        self.best_return = -np.inf

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def _on_training_start(self) -> None:
        self._began = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps < self._next:
            return True
        self._next += self._interval
        mean = mean_return(self.model, self._env)
        self.best_return = max(self.best_return, mean)
        self.reached = mean >= self._target
        return not self.reached


def mean_return(model: Any, env: Any) -> float:
    """Of one greedy episode in every lane."""
    observation = env.reset()
    running = np.ones(env.num_envs, bool)
    total = np.zeros(env.num_envs)
    while running.any():
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, done, _ = env.step(action)
        total += reward * running
        running &= ~done
    return float(total.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--target", type=float, required=True, help="mean return to reach")
    parser.add_argument("--interval", type=int, required=True, help="steps between evaluations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None, help="environment steps, at most")
    parser.add_argument("--network", default="", help="units of the layers, with commas")
    parser.add_argument("--batch_size", type=int, default=None, help="of one gradient step")
    arguments = parser.parse_args()
    case = CASES[arguments.case]
    parameters = dict(case.parameters)
    if arguments.network:
        layers = [int(units) for units in arguments.network.split(",")]
        parameters["policy_kwargs"] = {"net_arch": layers}
    if arguments.batch_size:
        parameters["batch_size"] = arguments.batch_size
    torch.set_num_threads(1)  # With networks as small as these, more threads only wait longer.
    env = env_util.make_vec_env(case.env_id, n_envs=case.num_envs, seed=arguments.seed)
    model = case.algorithm("MlpPolicy", env, seed=arguments.seed, device="cpu", **parameters)
    clock = Clock(case.env_id, arguments.target, arguments.interval)
    model.learn(arguments.steps or case.steps, callback=clock)
    result = {
        "seconds": clock.seconds,
        "reached": clock.reached,
        "environment_steps": model.num_timesteps,
        "best_return": clock.best_return if np.isfinite(clock.best_return) else None,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
