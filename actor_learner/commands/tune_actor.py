"""`actor-learner tune-actor`: measure an actor with few and many lanes, and say what suits it."""

from __future__ import annotations

import argparse
import inspect
import os
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Callable

from actor_learner import config, import_path
from actor_learner.reporting import process_output
from actor_learner.support import errors, formatting

OK = 0
_LANES = (1, 4, 16, 64, 256)
_NO_MORE = 1.1  # Growth of the rate, below which twice as many lanes are not tried.


def add_parser(commands: Any) -> None:
    """Adds the command to the command line.

    Args:
      commands: What `ArgumentParser.add_subparsers` returned.
    """
    parser = commands.add_parser(
        "tune-actor", help="measure how many lanes, and how many actors, suit an environment"
    )
    config.add_flags(parser)
    parser.add_argument(
        "--lanes",
        default=",".join(map(str, _LANES)),
        metavar="1,4,...",
        help="numbers of lanes to try, until more of them no longer help (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="to act with each (default: %(default)g)"
    )
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> int:
    if not arguments.gin_file:
        raise errors.ConfigError(
            "tune-actor needs --gin_file=FILE. Ready-made: " + ", ".join(config.leaves())
        )
    if not arguments.seconds > 0:
        raise errors.ConfigError(f"--seconds must be above 0, got {arguments.seconds}")
    wanted = _parsed(arguments.lanes)
    source = config.ConfigSource(tuple(arguments.gin_file), tuple(arguments.gin_param))
    import_path.extend(import_path.of(source))
    config.check(source)
    with (
        tempfile.TemporaryDirectory(prefix="actor-learner-tune-") as directory,
        process_output.capture_native_output(
            os.path.join(directory, "log"), terminal="stdout", capture_stdout=True
        ) as output,
    ):
        with output.quiet_imports():
            from actor_learner import experiment as experiment_lib

            config.load(source)
            experiment = experiment_lib.Experiment()
        if experiment.is_offline:
            raise errors.ConfigError("this configuration has no environment: it learns from files")

        def say(line: str) -> None:
            print(line, file=output.terminal, flush=True)

        run(experiment, wanted, arguments.seconds, directory, say)
    return OK


def run(
    experiment: Any,
    wanted: Sequence[int],
    seconds: float,
    directory: str,
    say: Any,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Any:
    """Measures, shows a table, and recommends; returns the `actor_advice.Advice`.

    Args:
      experiment: What to measure.
      wanted: Numbers of lanes, ascending.
      seconds: To act with each.
      directory: For experience that the experiment records.
      say: Takes a line for the user.
      clock: Returns seconds.
    """
    from actor_learner.runs import actor_advice, actor_tuning

    takes = "num_envs" in _parameters(experiment.environment)
    name = getattr(experiment.environment, "__name__", "the environment")
    if not takes:
        say(f"{name} takes no num_envs: it is measured as it is")
    say(f"{'lanes':>6} {'steps/s':>9} {'step':>10} {'infer':>10} {'write':>10}   per step of all")
    measured: list[actor_advice.Measured] = []
    inference = ""
    for lanes in wanted if takes else (None,):
        found, inference = actor_tuning.measure(
            experiment,
            lanes,
            seconds=seconds,
            recording_dir=os.path.join(directory, "experience"),
            clock=clock,
        )
        times = (found.stepping, found.inferring, found.writing)
        shown = " ".join(f"{_microseconds(each):>10}" for each in times)
        rate = formatting.rate(found.steps_per_second)
        say(f"{found.lanes:>6} {rate:>9} {shown}")
        grows = not measured or (
            found.steps_per_second > _NO_MORE * max(each.steps_per_second for each in measured)
        )
        measured.append(found)
        if not grows:
            break
    advice = actor_advice.advise(measured, os.cpu_count() or 1)
    say(f"\ninference: {inference}. Recommended:")
    for line in bindings(experiment, name if takes else None, advice):
        say(f"  {line}")
    for reason in advice.reasons:
        say(f"- {reason}")
    return advice


def bindings(experiment: Any, environment: str | None, advice: Any) -> list[str]:
    """What to write to follow an advice, as far as this version has it.

    Args:
      experiment: What was measured.
      environment: Name of the configurable that takes `num_envs`; None if it takes none.
      advice: An `actor_advice.Advice`.
    """
    lines = [] if environment is None else [f"{environment}.num_envs = {advice.lanes}"]
    if advice.ring_size > 1 and hasattr(experiment, "ring_size"):
        lines.append(f"Experiment.ring_size = {advice.ring_size}")
        lines.append(f"Actor.inference_stream = '{advice.inference}'")
    return [*lines, f"actor-learner up --actors={advice.actors}"]


def _parameters(environment: Any) -> Sequence[str]:
    called: Any = environment
    signed = called.__init__ if inspect.isclass(called) else called
    return list(inspect.signature(signed).parameters)


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f} µs"


def _parsed(text: str) -> list[int]:
    try:
        lanes = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise errors.ConfigError(f"--lanes={text}: write numbers, as in --lanes=1,16,64") from error
    if lanes[0] < 1:
        raise errors.ConfigError(f"--lanes={text}: each must be at least 1")
    return lanes
