"""Tensor environments: whole training beside PPO compiled by JAX, collecting, growth by lanes.

Whole training is by the command a user types, the peer by `benchmarks/peers/jax_ppo.py`; both have
two networks of 64x64, unrolls of 32 steps and 4 epochs. Rates are environment steps per second,
between two lines of metrics after the first seconds. Seconds to 475 count from the first step to
the end of the run, which is when 20 episodes of their own have confirmed that return; tracing
counts for us, and compiling does not for the peer, whose note has it.

Collecting is unrolls into Reverb's queue; the limit is the bare graph call, the peer Gymnasium's
vector environment with TFLite inference into the same queue.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks import end_to_end, harness, peer_process, processes, settings, tensor_collect

SIZES = ((256, 4), (2_048, 8))
"""Lanes, and minibatches per epoch."""

SCRIPT = "jax_ppo.py"
TARGET = 475.0
PLOT = pathlib.Path(__file__).resolve().parent / "tensor_growth.png"


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes, minibatches in SIZES[: config.tensor_sizes]:
        yield from training_rows(config, lanes, minibatches)
    yield target_row(config)
    for world in tensor_collect.WORLDS:
        yield collect_row(config, world)
    yield from growth_rows(config)


def training_rows(config: settings.Settings, lanes: int, minibatches: int) -> Iterator[harness.Row]:
    """Environment steps per second of whole training: PPO beside the peer, IMPALA beside PPO."""
    ppo = (*_ppo(lanes, minibatches), *config.tensor_arguments)
    impala = (f"--gin_param=TensorEnvironment.num_envs = {lanes}", *config.tensor_arguments)
    ours, theirs, unclipped, compiling = [], [], [], []
    for seed in range(config.tensor_repetitions):
        ours.append(_rate(config, "ppo_tensor_cartpole", seed, ppo))
        unclipped.append(_rate(config, "impala_tensor_cartpole", seed, impala))
        if peer_process.available():
            found = _peer(
                "rate", lanes, minibatches, seed, f"--seconds={config.tensor_peer_seconds}"
            )
            theirs.append(found["steps_per_second"])
            compiling.append(found["compile_seconds"])
    case = f"PPO 64x64 twice, {lanes} lanes x 32, 4 epochs, {minibatches} minibatches, steps/s"
    note = f"JAX, which compiles for {statistics.median(compiling):.0f} s" if theirs else "no peer"
    peer = {"peer": theirs} if theirs else {}
    yield harness.row("tensor", case, {"ours": ours, **peer}, note=note)
    case = f"IMPALA 64x64 twice, {lanes} lanes x 32, steps/s"
    yield harness.row("tensor", case, {"ours": unclipped, "peer": ours}, note="peer: our PPO")


def target_row(config: settings.Settings) -> harness.Row:
    """Seconds of training until a return of 475 is confirmed."""
    lanes, minibatches = SIZES[0]
    arguments = (*_ppo(lanes, minibatches), *config.train_arguments)
    ours, theirs, reached = [], [], [0, 0]
    for seed in range(config.seeds):
        lines = end_to_end.train("ppo_tensor_cartpole", seed, arguments)
        ours.append(lines[-1]["seconds"])
        reached[0] += end_to_end.first_reaching(lines, TARGET) is not None
        if peer_process.available():
            found = _peer("target", lanes, minibatches, seed, f"--target={TARGET}")
            theirs.append(found["seconds"])
            reached[1] += found["reached"]
    note = f"{reached[0]} of {len(ours)} seeds"
    if theirs:
        note += f", JAX: {reached[1]} of {len(theirs)}"
    peer = {"peer": theirs} if theirs else {}
    case = f"PPO 64x64 twice, {lanes} lanes, CartPole to 475, s"
    return harness.row("tensor", case, {"ours": ours, **peer}, note=note)


def collect_row(config: settings.Settings, world: str) -> harness.Row:
    """Environment steps per second through Reverb, by the bare graph, and in Gymnasium."""
    lanes = config.tensor_lanes
    ours = tensor_collect.Collector(tensor_collect.tensor_env(world, lanes))
    collectors, in_gymnasium = [ours], tensor_collect.WORLDS[world][1] is not None
    measures = {
        "ours": harness.rate(ours.collect, config.seconds),
        "limit": harness.rate(ours.bare, config.seconds),
    }
    if in_gymnasium:
        peer = tensor_collect.Collector(tensor_collect.gymnasium_env(world, lanes))
        collectors.append(peer)
        measures["peer"] = harness.rate(peer.collect, config.seconds)
    with settings.closing(*collectors):
        results = harness.alternate(measures, config.repetitions)
    note = "peer: Gymnasium with TFLite" if in_gymnasium else "Gymnasium has no such world"
    return harness.row("tensor", f"collect {world}, {lanes} lanes, steps/s", results, note=note)


def growth_rows(config: settings.Settings) -> Iterator[harness.Row]:
    """Collecting through Reverb by lanes; drawn in `tensor_growth.png` where all were measured."""
    found: dict[int, dict[str, Any]] = {}
    for lanes in config.tensor_growth:
        command = [sys.executable, "-m", "benchmarks.tensor_growth", f"--lanes={lanes}",
                   f"--seconds={config.seconds}"]  # fmt: skip
        output = processes.run(command, end_to_end.TRAIN_SECONDS)
        one = found[lanes] = json.loads(output.splitlines()[-1])
        yield harness.row(
            "tensor",
            f"growth: collect CartPole, {lanes} lanes, steps/s",
            {"ours": [one["steps_per_second"]], "limit": [one["bare_steps_per_second"]]},
            note=f"{one['megabytes']:.0f} MB, {one['compile_seconds']:.1f} s to the first unroll",
        )
    if config.tensor_growth == settings.Settings.tensor_growth:
        plot(found, PLOT)


def plot(found: dict[int, dict[str, Any]], path: pathlib.Path) -> None:
    """Draws what grew with the lanes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    titles = {
        "steps_per_second": "environment steps per second",
        "megabytes": "memory of the process, MB",
        "compile_seconds": "seconds to the first unroll",
    }
    for panel, (name, title) in zip(panels, titles.items()):
        panel.plot(list(found), [one[name] for one in found.values()], marker="o", label="Reverb")
        if name == "steps_per_second":
            bare = [one["bare_steps_per_second"] for one in found.values()]
            panel.plot(list(found), bare, marker="o", label="bare graph")
            panel.legend()
        panel.set(title=title, xlabel="lanes", xscale="log", ylim=(0, None))
    figure.savefig(path)
    pyplot.close(figure)


def _ppo(lanes: int, minibatches: int) -> tuple[str, ...]:
    bindings = (
        f"TensorEnvironment.num_envs = {lanes}",
        f"ppo.minibatch_size = {lanes * tensor_collect.LENGTH // minibatches}",
        "ppo.share_torso = False",
        "ppo.normalize_rewards = False",
    )
    return tuple(f"--gin_param={binding}" for binding in bindings)


def _rate(config: settings.Settings, leaf: str, seed: int, arguments: tuple[str, ...]) -> float:
    lines = end_to_end.train(leaf, seed, arguments)
    return end_to_end.steps_per_second(lines, config.rate_warm_up_seconds)


def _peer(what: str, lanes: int, minibatches: int, seed: int, *more: str) -> dict[str, Any]:
    arguments = (f"--lanes={lanes}", f"--minibatches={minibatches}", f"--seed={seed}", *more)
    return peer_process.run(SCRIPT, what, *arguments)
