"""Whole trainings by the command a user types: seconds to a target, and steps per second.

Seconds count from the first environment step to the first evaluation that reaches the target,
evaluations included: less is better. Rates are environment steps per second with learning, between
two lines of metrics after the first seconds, so that starting up and tracing do not count.

Peers are measured in the same run, by turns with ours, if `make bench-peers` has made their
environment. Otherwise their figures are what they needed on another two-core machine, and the case
says so: of SB3's DQN, 49 to 76 s, the best, of its PPO, 2.5 to 22 s, the median. The peer of the
last rows is TF-Agents (`benchmarks.dqn_loop`).
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
import tempfile

from actor_learner.reporting import jsonl
from benchmarks import dqn_loop, harness, peer_process, processes, settings

TRAIN_SECONDS = 1_800


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another system that does the same.

    Attributes:
      name: Of the system.
      recorded: Its figure on another machine: seconds, or steps per second.
      script: Measures it, one of `benchmarks/peers`.
      arguments: Of the script.
      figure: What of the script's results counts.
    """

    name: str
    recorded: float
    script: str
    arguments: tuple[str, ...]
    figure: str

    def measure(self, seed: int, more: tuple[str, ...]) -> dict:
        return peer_process.run(self.script, *self.arguments, f"--seed={seed}", *more)


@dataclasses.dataclass(frozen=True)
class Case:
    """A leaf to train.

    Attributes:
      leaf: Name of the gin file.
      what: Shown in the table.
      target: Return that ends the clock; None measures the rate.
      seeds: Trainings.
      peer: What it is compared with.
    """

    leaf: str
    what: str
    target: float | None
    seeds: int
    peer: Peer


def _sb3(leaf: str, recorded: float, target: float, interval: int) -> Peer:
    """SB3, evaluated after as many steps as our leaf is."""
    arguments = (leaf, f"--target={target}", f"--interval={interval}")
    return Peer("SB3", recorded, "sb3_seconds.py", arguments, "seconds")


_SAMPLE_FACTORY = Peer("Sample Factory", 10_400.0, "sample_factory_rate.py", (), "steps_per_second")

CASES = (
    Case("dqn_cartpole", "DQN CartPole to 475, s", 475.0, 5,
         _sb3("dqn_cartpole", 49.0, 475.0, 2_000)),
    Case("ppo_cartpole", "PPO CartPole to 475, s", 475.0, 5,
         _sb3("ppo_cartpole", 8.0, 475.0, 8_000)),
    Case("sac_pendulum", "SAC Pendulum to -180, s", -180.0, 3,
         _sb3("sac_pendulum", 41.0, -180.0, 1_000)),
    Case("ppo_cartpole", "PPO CartPole, steps/s", None, 3, _SAMPLE_FACTORY),
    Case("impala_cartpole", "IMPALA CartPole, steps/s", None, 3, _SAMPLE_FACTORY),
)  # fmt: skip


def rows(config: settings.Settings) -> list[harness.Row]:
    peers = _Peers(config) if peer_process.available() else None
    return [*(_row(config, case, peers) for case in CASES), *dqn_loop.rows(config)]


def _row(config: settings.Settings, case: Case, peers: _Peers | None) -> harness.Row:
    arguments = config.rate_arguments if case.target is None else config.train_arguments
    runs, theirs = [], []
    for seed in range(min(case.seeds, config.seeds)):
        runs.append(train(case.leaf, seed, arguments))
        if peers is not None:
            theirs.append(peers.measure(case.peer, seed))
    return harness.row(
        "end_to_end",
        describe(case, runs, theirs),
        {
            "ours": [figure(run, case.target, config.rate_warm_up_seconds) for run in runs],
            "peer": [found[case.peer.figure] for found in theirs] or [case.peer.recorded],
        },
    )


class _Peers:
    """Measures peers, each seed once: two cases have the same one."""

    def __init__(self, config: settings.Settings) -> None:
        self._more = config.peer_arguments
        self._known: dict[tuple[Peer, int], dict] = {}

    def measure(self, peer: Peer, seed: int) -> dict:
        key = (peer, seed)
        if key not in self._known:
            self._known[key] = peer.measure(seed, self._more.get(peer.script, ()))
        return self._known[key]


def describe(case: Case, runs: list[list[dict]], theirs: list[dict]) -> str:
    """What the row shows: of targets how often they were reached, and whence the peer's figure."""
    what, peer = case.what, case.peer.name
    if case.target is not None:
        reached = sum(first_reaching(run, case.target) is not None for run in runs)
        what += f", {reached} of {len(runs)} seeds"
    if not theirs:
        return f"{what} ({peer}: {case.peer.recorded:,g}, recorded on another machine)"
    if case.target is not None:
        peer += f": {sum(found['reached'] for found in theirs)} of {len(theirs)} seeds"
    return f"{what} ({peer})"


def train(leaf: str, seed: int, arguments: tuple[str, ...] = ()) -> list[dict]:
    """Trains in a process of its own; returns the lines of its metrics.

    Raises:
      processes.CommandError: If training fails; the message ends with its output.
    """
    with tempfile.TemporaryDirectory() as directory:
        run = pathlib.Path(directory) / "run"
        processes.run(
            [sys.executable, "train.py", f"--gin_file=gin/{leaf}.gin", f"--seed={seed}",
             f"--run_dir={run}", *arguments],
            TRAIN_SECONDS,
        )  # fmt: skip
        return jsonl.read_rows(run / "metrics.jsonl")


def first_reaching(metrics: list[dict], target: float) -> dict | None:
    """The first evaluation that reached `target`."""
    return next((row for row in metrics if row.get("eval_return", -1e9) >= target), None)


def figure(metrics: list[dict], target: float | None, warm_up_seconds: float = 0.0) -> float:
    """Seconds until `target` was reached, or of all training if it never was; else steps/s."""
    if target is None:
        return steps_per_second(metrics, warm_up_seconds)
    return (first_reaching(metrics, target) or metrics[-1])["seconds"]


def steps_per_second(metrics: list[dict], warm_up_seconds: float) -> float:
    """The slope from the first line after the warm-up to the last before any evaluation.

    Raises:
      RuntimeError: If there are not two such lines.
    """
    trained = itertools.takewhile(lambda row: "eval_return" not in row, metrics)
    counted = [row for row in trained if row["seconds"] >= warm_up_seconds]
    if len(counted) < 2 or counted[0]["seconds"] == counted[-1]["seconds"]:
        raise RuntimeError(
            f"{len(counted)} lines of metrics between the first {warm_up_seconds:g} s and the "
            "first evaluation: too few to measure a rate; train for more environment steps"
        )
    first, last = counted[0], counted[-1]
    steps = last["environment_steps"] - first["environment_steps"]
    return steps / (last["seconds"] - first["seconds"])
