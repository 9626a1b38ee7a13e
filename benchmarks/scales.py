"""Shows that agents learn alike whatever the bounds and the dtype of their actions are.

python -m benchmarks.scales [--only=sac,td3] [--scales='±0.05;[0, 1]'] [--problem=pendulum]

Two tables: how far from the best the actions are that each agent has learned for a problem of one
step, in units of half the action's range; and the return each reaches on Pendulum behind a wrapper
that rescales its action. The runs on Pendulum are made by the command a user types, under
`learn/scales/`; finished ones are not repeated unless `--fresh` is given. `bc` and `cql_sac` learn
there from what a run of `sac` with the same bounds has collected. The exit code is 1 unless all of
them learn.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import shutil
import sys

from benchmarks import processes

ROOT = processes.ROOT
RUNS = ROOT / "learn" / "scales"
FLOAT64 = "±0.4 float64"
SCALES = {
    "±1": (-1.0, 1.0),
    "±0.05": (-0.05, 0.05),
    "±0.4": (-0.4, 0.4),
    "±2": (-2.0, 2.0),
    "±100": (-100.0, 100.0),
    "[0, 1]": (0.0, 1.0),
    "[-3, 1]": (-3.0, 1.0),
    FLOAT64: (-0.4, 0.4),
}
ONE_STEP, PENDULUM = "one_step", "pendulum"

LARGEST_ERROR = 0.1
"""Of a learned action in the problem of one step; random ones are off by 0.6."""
TRAIN_STEPS = 600

TRAIN_SECONDS = 3_600


@dataclasses.dataclass(frozen=True)
class Training:
    """How an agent is trained on Pendulum.

    Attributes:
      gin_file: What it is trained with,
      target: the return that an evaluation must reach,
      bindings: and what differs from the file.
      recorded: Whether it learns from the steps of a run of SAC.
    """

    gin_file: str
    target: float
    bindings: tuple[str, ...] = ()
    recorded: bool = False


TRAININGS = {
    "sac": Training("gin/sac_pendulum.gin", -180.0),
    "td3": Training("gin/td3_pendulum.gin", -180.0),
    "ddpg": Training("benchmarks/ddpg_pendulum.gin", -180.0),
    "ppo": Training("gin/ppo_pendulum.gin", -200.0),
    "cql_sac": Training("gin/cql_pendulum.gin", -200.0, recorded=True),
    "bc": Training(
        "benchmarks/bc_pendulum.gin",
        -200.0,
        # The episodes of the trained policy: those of the untrained one are not worth imitating.
        ("RecordedReplay.min_episode_return = -400.0",),
        recorded=True,
    ),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(TRAININGS), help="agents, by commas")
    parser.add_argument("--scales", default=";".join(SCALES), help="scales, by semicolons")
    parser.add_argument("--problem", choices=(ONE_STEP, PENDULUM), help="one of the two tables")
    parser.add_argument("--fresh", action="store_true", help="repeat what is finished")
    options = parser.parse_args(arguments)
    agents, scales = options.only.split(","), options.scales.split(";")
    for given, known in ((agents, TRAININGS), (scales, SCALES)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    learned = True
    if options.problem in (None, ONE_STEP):
        learned &= _one_step(agents, scales)
    if options.problem in (None, PENDULUM):
        learned &= _pendulum(agents, scales, fresh=options.fresh)
    return 0 if learned else 1


def _one_step(agents: list[str], scales: list[str]) -> bool:
    """Prints the table of the problem of one step; returns whether all have learned it."""
    import tensorflow as tf

    from benchmarks import one_step_problem

    print(f"\nError after {TRAIN_STEPS} train steps, in units of half the range")
    _print_row("", scales)
    _print_row("---", ["---:"] * len(scales))
    learned = True
    for agent in agents:
        cells = []
        for scale in scales:
            dtype = tf.float64 if scale == FLOAT64 else tf.float32
            learning = one_step_problem.Learning(agent, *SCALES[scale], dtype)
            learning.train(TRAIN_STEPS)
            error = float(learning.error().max())
            learned &= error < LARGEST_ERROR
            cells.append(f"{error:.3f}")
        _print_row(agent, cells)
    return learned


def _pendulum(agents: list[str], scales: list[str], *, fresh: bool) -> bool:
    """Prints the table of Pendulum; returns whether all have reached their targets."""
    rows: dict[str, list[str]] = {agent: [] for agent in agents}
    reached = True
    for scale in scales:
        for agent in agents:
            best, at = _train(agent, scale, fresh=fresh)
            reached &= at is not None
            cell = f"{best:.0f}" + ("" if at is None else f" ({at:,})")
            print(f"{agent} {scale}: {cell}", flush=True)
            rows[agent].append(cell)
    print("\nBest return on Pendulum, and after how many steps the target was reached")
    print("(environment steps; of cql_sac and bc train steps)")
    _print_row("", ["target", *scales])
    _print_row("---", ["---:"] * (1 + len(scales)))
    for agent, cells in rows.items():
        _print_row(agent, [f"{TRAININGS[agent].target:.0f}", *cells])
    return reached


def _train(agent: str, scale: str, *, fresh: bool) -> tuple[float, int | None]:
    """The best return, and the steps to the target; None if it was not reached."""
    from actor_learner.reporting import jsonl

    training = TRAININGS[agent]
    run = RUNS / f"{agent} {scale}"
    if fresh or not (run / "best" / "score.json").exists():
        bindings = list(training.bindings)
        if training.recorded:
            bindings.append(f"RecordedReplay.path = {str(_recorded(scale, fresh=fresh))!r}")
        _command(training.gin_file, run, scale, bindings)
    steps = "train_steps" if training.recorded else "environment_steps"
    rated = [row for row in jsonl.read_rows(run / "metrics.jsonl") if "eval_return" in row]
    reached = [row[steps] for row in rated if row["eval_return"] >= training.target]
    return max(row["eval_return"] for row in rated), int(reached[0]) if reached else None


def _recorded(scale: str, *, fresh: bool) -> pathlib.Path:
    """A run of SAC that has recorded all its steps, and does not stop at its target."""
    run = RUNS / f"recorded {scale}"
    if fresh or not (run / "best" / "score.json").exists():
        bindings = ["Experiment.record = True", "Evaluation.target_return = None"]
        _command(TRAININGS["sac"].gin_file, run, scale, bindings)
    return run


def _command(gin_file: str, run: pathlib.Path, scale: str, bindings: list[str]) -> None:
    low, high = SCALES[scale]
    dtype = "float64" if scale == FLOAT64 else "float32"
    arguments = {"low": low, "high": high, "dtype": dtype}
    wrapper = ("benchmarks.rescaled_action:RescaledAction", arguments)
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "actor_learner.cli", "train", f"--gin_file={gin_file}"]
    command += ["--seed=0", f"--run_dir={run}"]
    for binding in [f"GymnasiumEnvironment.wrappers = [{wrapper!r}]", *bindings]:
        command.append(f"--gin_param={binding}")
    processes.run(command, TRAIN_SECONDS)


def _print_row(head: str, cells: list[str]) -> None:
    print(f"| {head} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
