"""What overlapping brings: environment steps per second of a training whose environment waits.

Ours: `Experiment.overlap = True`, which collects in a thread while the graph trains. Peer: the same
training by turns, which is the default. Limit: the environment alone. One lane that sleeps 5 ms per
step, and as many train steps of DQN (128x128, batch 64) per environment step as take about as long:
at best overlapping doubles the rate, and on a machine that trains faster or slower it brings less.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import end_to_end, harness, settings

LEAF = "dqn_cartpole"
STEP_SECONDS = 0.005
UPDATES_PER_STEP = 12.0
_BINDINGS = (
    "GymnasiumEnvironment.env_id = 'benchmarks.sleeping_environment:Sleeping-v0'",
    "GymnasiumEnvironment.num_envs = 1",
    f"GymnasiumEnvironment.make_kwargs = {{'step_seconds': {STEP_SECONDS}}}",
    f"Experiment.updates_per_step = {UPDATES_PER_STEP}",
    "Experiment.collect_steps = 16",
    "Experiment.initial_random_steps = 64",
    # An evaluation waits as well, and is not what is measured.
    "Evaluation.episodes = 1",
)


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    results = harness.alternate(
        {"ours": lambda: rate(config, True), "peer": lambda: rate(config, False)},
        config.few_repetitions,
        warm_up=False,
    )
    yield harness.row(
        "overlap",
        f"DQN 128x128, batch 64, {UPDATES_PER_STEP:g} updates a step of {STEP_SECONDS * 1e3:g} ms",
        {**results, "limit": [1.0 / STEP_SECONDS]},
        note="peer: ours by turns",
    )


def rate(config: settings.Settings, overlap: bool) -> float:
    """Steps per second of one training."""
    bindings = (*_BINDINGS, f"Experiment.overlap = {overlap}")
    arguments = tuple(f"--gin_param={binding}" for binding in bindings)
    metrics = end_to_end.train(LEAF, 0, (*arguments, *config.overlap_arguments))
    return end_to_end.steps_per_second(metrics, config.overlap_warm_up_seconds)
