"""Turns of one step and one train step: what most people run first, per second.

`loop` rows: TF-Agents' own script (`benchmarks.seed_loop`) with our modules and, as peer, with
theirs. `learner` rows: `Learner.run(1)`, whose limit is the same train step within `run(100)`, on a
dataset that costs nothing. `SBX` rows: one lane by the command that a user types, in environment
steps per second, beside SBX (SB3 on JAX) with the same networks, batches and updates, by turns in
one run; without the peers' environment (`make bench-peers`) SBX's figures are those of another
two-core machine, and the row says so.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.learning import learner
from benchmarks import end_to_end, harness, peer_process, seed_loop, settings

ENVIRONMENTS = {"DQN": ("CartPole-v1", seed_loop.dqn), "SAC": ("Pendulum-v1", seed_loop.sac)}
MANY = 100


@dataclasses.dataclass(frozen=True)
class SbxCase:
    """A training that SBX does as well.

    Attributes:
      name: In `benchmarks/peers/sbx_rate.py`.
      what: Shown in the table.
      recorded: SBX's environment steps per second on another machine.
      leaf: Name of our gin file.
      steps: Environment steps of ours, and of SBX.
      bindings: What differs from the gin file.
    """

    name: str
    what: str
    recorded: float
    leaf: str
    steps: int
    bindings: tuple[str, ...]


_DQN = ("dqn.fc_layer_params = (64, 64)", "dqn.n_step = 1", "Experiment.batch_size = 64")
_SAC = (
    "sac.actor_fc_layer_params = (256, 256)",
    "sac.critic_fc_layer_params = (256, 256)",
    "Experiment.batch_size = 256",
)
SBX_CASES = (
    SbxCase("dqn_each_step", "DQN 64x64, batch 64, CartPole, 1 update per step", 615.0,
            "dqn_cartpole", 15_000,
            (*_DQN, "Experiment.collect_steps = 1", "Experiment.updates_per_step = 1")),
    SbxCase("dqn_bursts", "DQN 64x64, batch 64, CartPole, 128 updates per 256 steps", 4_669.0,
            "dqn_cartpole", 80_000,
            (*_DQN, "Experiment.collect_steps = 256", "Experiment.updates_per_step = 0.5")),
    SbxCase("sac_each_step", "SAC 256x256, batch 256, Pendulum, 1 update per step", 162.0,
            "sac_pendulum", 4_000,
            (*_SAC, "Experiment.collect_steps = 1", "Experiment.updates_per_step = 1")),
)  # fmt: skip


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for name in ENVIRONMENTS:
        yield _loop_row(config, name)
    for name in ENVIRONMENTS:
        yield _learner_row(config, name)
    for case in SBX_CASES:
        yield _sbx_row(config, case)


def _loop_row(config: settings.Settings, name: str) -> harness.Row:
    env_id, make_agent = ENVIRONMENTS[name]
    with (
        tempfile.TemporaryDirectory() as directory,
        seed_loop.loop(seed_loop.OURS, env_id, make_agent, f"{directory}/ours") as ours,
        seed_loop.loop(seed_loop.THEIRS, env_id, make_agent, f"{directory}/theirs") as theirs,
    ):
        results = harness.alternate(
            {
                "ours": harness.rate(ours, config.seconds),
                "peer": harness.rate(theirs, config.seconds),
            },
            config.repetitions,
        )
    case = f"loop, {name} 64x64, batch 64, {env_id}, TF-Agents' script"
    return harness.row("turns", case, results, note="TF-Agents")


def _learner_row(config: settings.Settings, name: str) -> harness.Row:
    env_id, make_agent = ENVIRONMENTS[name]
    train_step = tf.Variable(0, dtype=tf.int64)
    agent = make_agent(seed_loop.OURS.load("suite").load(env_id), train_step)
    with (
        tempfile.TemporaryDirectory() as directory,
        learner.Learner(directory, train_step, agent, lambda: _batches(agent)) as learning,
    ):

        def run(iterations: int) -> int:
            learning.run(iterations)
            return iterations

        for iterations in (1, MANY, 1):
            run(iterations)
        results = harness.alternate(
            {
                "ours": harness.rate(lambda: run(1), config.seconds),
                "limit": harness.rate(lambda: run(MANY), config.seconds),
            },
            config.repetitions,
        )
    over = 1e3 / statistics.median(results["ours"]) - 1e3 / statistics.median(results["limit"])
    return harness.row(
        "turns",
        f"learner, {name} 64x64, batch {seed_loop.BATCH_SIZE}, run(1); limit: run({MANY})",
        results,
        note=f"{over:.2f} ms more per step",
    )


def _batches(agent: tf_agent.TFAgent) -> tf.data.Dataset:
    """One batch of random steps in the middle of episodes, for ever."""
    steps = [
        settings.random_step(agent.collect_data_spec, seed_loop.BATCH_SIZE, seed)
        for seed in range(2)
    ]
    batch = tf.nest.map_structure(lambda *leaves: np.stack(leaves, axis=1), *steps)
    return tf.data.Dataset.from_tensors((batch, ())).repeat()


def _sbx_row(config: settings.Settings, case: SbxCase) -> harness.Row:
    steps = config.sbx_steps or case.steps
    arguments = tuple(
        f"--gin_param={binding}"
        for binding in (*case.bindings, "GymnasiumEnvironment.num_envs = 1")
    )
    ours, theirs = [], []
    for seed in range(config.few_repetitions):
        run = end_to_end.train(
            case.leaf, seed, (*arguments, *config.sbx_arguments, settings.steps(steps))
        )
        ours.append(end_to_end.steps_per_second(run, config.sbx_warm_up_seconds))
        if peer_process.available():
            found = peer_process.run(
                "sbx_rate.py", case.name, f"--steps={steps}", f"--seed={seed}",
                f"--warm_up={config.sbx_warm_up_seconds}",
            )  # fmt: skip
            theirs.append(found["steps_per_second"])
    note = "SBX" if theirs else f"SBX: {case.recorded:,g}, recorded on another machine"
    results = {"ours": ours, "peer": theirs or [case.recorded]}
    return harness.row("turns", f"SBX, {case.what}, 1 lane, steps/s", results, note=note)
