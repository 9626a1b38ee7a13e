"""Whole trainings by the command a user types: seconds to a target, and steps per second.

Seconds count from the first environment step to the first evaluation that reaches the target, less
is better; rates are environment steps over seconds of training, learning and evaluation included.
Peers are not measured here: they are what SB3 and Sample Factory needed on another two-core
machine, of a range the end that is better for them.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
import tempfile

from actor_learner.reporting import jsonl
from benchmarks import harness, settings

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN_SECONDS = 1_800


@dataclasses.dataclass(frozen=True)
class Case:
    """A leaf to train, and what another system needed for it.

    Attributes:
      leaf: Name of the gin file.
      what: Shown in the table.
      peer: Measured elsewhere: seconds, or steps per second.
      target: Return that ends the clock; None measures the rate.
      seeds: Trainings.
    """

    leaf: str
    what: str
    peer: float
    target: float | None
    seeds: int


CASES = (
    Case("dqn_cartpole", "DQN CartPole to 475, s (SB3 49-76)", 49.0, 475.0, 5),
    Case("ppo_cartpole", "PPO CartPole to 475, s (SB3 2.5-22)", 2.5, 475.0, 5),
    Case("sac_pendulum", "SAC Pendulum to -180, s (SB3 41)", 41.0, -180.0, 3),
    Case("ppo_cartpole", "PPO CartPole, steps/s (Sample Factory 10,400)", 10_400.0, None, 1),
    Case("impala_cartpole", "IMPALA CartPole, steps/s (Sample Factory)", 10_400.0, None, 1),
)


def rows(config: settings.Settings) -> list[harness.Row]:
    trained: dict[tuple[str, int], list[dict]] = {}
    found = []
    for case in CASES:
        runs = []
        for seed in range(min(case.seeds, config.seeds)):
            key = (case.leaf, seed)
            if key not in trained:
                trained[key] = train(case.leaf, seed, config.train_arguments)
            runs.append(trained[key])
        ours = [figure(run, case.target) for run in runs]
        what = case.what
        if case.target is not None:
            reached = sum(first_reaching(run, case.target) is not None for run in runs)
            what += f", {reached} of {len(runs)} seeds"
        found.append(harness.row("end_to_end", what, {"ours": ours, "peer": [case.peer]}))
    return found


def train(leaf: str, seed: int, arguments: tuple[str, ...] = ()) -> list[dict]:
    """Trains in a process of its own; returns the lines of its metrics.

    Raises:
      RuntimeError: If training fails; the message ends with its output.
    """
    with tempfile.TemporaryDirectory() as directory:
        run = pathlib.Path(directory) / "run"
        process = subprocess.run(
            [sys.executable, "train.py", f"--gin_file=gin/{leaf}.gin", f"--seed={seed}",
             f"--run_dir={run}", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TRAIN_SECONDS,
        )  # fmt: skip
        if process.returncode != 0:
            raise RuntimeError(f"{leaf}, seed {seed}: training failed\n{process.stdout[-4000:]}")
        return jsonl.read_rows(run / "metrics.jsonl")


def first_reaching(metrics: list[dict], target: float) -> dict | None:
    """The first evaluation that reached `target`."""
    return next((row for row in metrics if row.get("eval_return", -1e9) >= target), None)


def figure(metrics: list[dict], target: float | None) -> float:
    """Seconds until `target` was reached, or of all training if it never was; else steps/s."""
    last = metrics[-1]
    if target is None:
        return last["environment_steps"] / last["seconds"]
    return (first_reaching(metrics, target) or last)["seconds"]
