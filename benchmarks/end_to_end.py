"""Whole trainings by the command a user types: seconds to a target, and steps per second.

Seconds count from the first environment step to the first evaluation that reaches the target,
evaluations included: less is better. Rates are environment steps per second with learning, between
two lines of metrics after the first seconds, so that starting up and tracing do not count.

Both sides have the networks and the batches that the case names; all else is what is known to be
best for each: our leaves', and the peers' own recommendations. Where there are two sizes, one is
our leaf's and one SB3's. Policy and value of PPO are one network in our leaf and in Sample Factory,
two in SB3; Sample Factory trains on batches of 512, once.

Peers are measured in the same run, by turns with ours, if `make bench-peers` has made their
environment. Otherwise their figures are what they needed on another two-core machine, with networks
of their own choice, and the row says so: of SB3's DQN, 49 to 76 s, the best, of its PPO, 2.5 to
22 s, the median. The peer of the last rows is TF-Agents (`benchmarks.dqn_loop`).
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
import tempfile
from collections.abc import Iterator

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
      what: Shown in the table: networks and batches of both sides, and what is measured.
      target: Return that ends the clock; None measures the rate.
      seeds: Trainings.
      peer: What it is compared with.
      bindings: What differs from the gin file.
    """

    leaf: str
    what: str
    target: float | None
    seeds: int
    peer: Peer
    bindings: tuple[str, ...] = ()


def _sb3(
    leaf: str, recorded: float, target: float, interval: int, units: int, batch_size: int
) -> Peer:
    """SB3, evaluated after as many steps as our leaf is, with two layers of `units`."""
    arguments = (leaf, f"--target={target}", f"--interval={interval}",
                 f"--network={units},{units}", f"--batch_size={batch_size}")  # fmt: skip
    return Peer("SB3", recorded, "sb3_seconds.py", arguments, "seconds")


def _dqn(units: int, seeds: int) -> Case:
    return Case(
        "dqn_cartpole",
        f"DQN {units}x{units}, batch 64, CartPole to 475, s",
        475.0,
        seeds,
        _sb3("dqn_cartpole", 49.0, 475.0, 2_000, units, 64),
        (f"dqn.fc_layer_params = ({units}, {units})",),
    )


def _sac(units: int, batch_size: int, seeds: int) -> Case:
    return Case(
        "sac_pendulum",
        f"SAC {units}x{units}, batch {batch_size}, Pendulum to -180, s",
        -180.0,
        seeds,
        _sb3("sac_pendulum", 41.0, -180.0, 1_000, units, batch_size),
        (
            f"sac.actor_fc_layer_params = ({units}, {units})",
            f"sac.critic_fc_layer_params = ({units}, {units})",
            f"Experiment.batch_size = {batch_size}",
        ),
    )


_SAMPLE_FACTORY = Peer("Sample Factory", 10_400.0, "sample_factory_rate.py", (), "steps_per_second")

CASES = (
    _dqn(128, 5),
    _dqn(256, 3),
    Case("ppo_cartpole", "PPO 64x64, minibatch 256, CartPole to 475, s", 475.0, 5,
         _sb3("ppo_cartpole", 8.0, 475.0, 8_000, 64, 256)),
    _sac(64, 128, 3),
    _sac(256, 256, 2),  # SB3 takes a minute for each seed.
    Case("ppo_cartpole", "PPO 64x64, minibatch 256, 10 epochs, CartPole, steps/s", None, 2,
         _SAMPLE_FACTORY),
    Case("impala_cartpole", "IMPALA 64x64, batch 1024, CartPole, steps/s", None, 2,
         _SAMPLE_FACTORY),
)  # fmt: skip


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    peers = _Peers(config) if peer_process.available() else None
    for case in CASES:
        yield _row(config, case, peers)
    yield from dqn_loop.rows(config)


def _row(config: settings.Settings, case: Case, peers: _Peers | None) -> harness.Row:
    arguments = tuple(f"--gin_param={binding}" for binding in case.bindings)
    arguments += config.rate_arguments if case.target is None else config.train_arguments
    runs, theirs = [], []
    for seed in range(min(case.seeds, config.seeds)):
        runs.append(train(case.leaf, seed, arguments))
        if peers is not None:
            theirs.append(peers.measure(case.peer, seed))
    return harness.row(
        "end_to_end",
        case.what,
        {
            "ours": [figure(run, case.target, config.rate_warm_up_seconds) for run in runs],
            "peer": [found[case.peer.figure] for found in theirs] or [case.peer.recorded],
        },
        note=describe(case, runs, theirs),
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
    """The row's note: of targets how often they were reached, and whence the peer's figure."""
    peer = case.peer.name
    if not theirs:
        peer += f": {case.peer.recorded:,g}, recorded on another machine, other networks"
    elif case.target is not None:
        peer += f": {sum(found['reached'] for found in theirs)} of {len(theirs)}"
    if case.target is None:
        return peer
    reached = sum(first_reaching(run, case.target) is not None for run in runs)
    return f"{reached} of {len(runs)} seeds, {peer}"


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
