"""What a soak runs: every kind of sample stream, small enough to be full within seconds."""

from __future__ import annotations

import dataclasses

_ENDLESS = 10**9

ONE_PROCESS, JOBS = "one process", "jobs"


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration to run until it is told to stop.

    Attributes:
      name: The stream's.
      leaf: Name of the gin file.
      bindings: Stronger than the file's.
      ways: How it is run.
      recorded: Whether it reads recorded experience, whose directory fills `{recorded}`.
    """

    name: str
    leaf: str
    bindings: tuple[str, ...]
    ways: tuple[str, ...] = (ONE_PROCESS, JOBS)
    recorded: bool = False


def _collecting(*bindings: str) -> tuple[str, ...]:
    return (
        *bindings,
        f"Experiment.environment_steps = {_ENDLESS}",
        "Evaluation.target_return = None",
        # What an evaluation makes is policy calls, like collecting.
        "Evaluation.interval = 0",
    )


CASES = (
    Case(
        "LaneReplay",
        "dqn_cartpole",
        _collecting("Experiment.replay = @LaneReplay()", "LaneReplay.capacity = 5_000"),
    ),
    Case(
        "WindowReplay",
        "dqn_cartpole",
        _collecting("Experiment.replay = @WindowReplay()", "WindowReplay.capacity = 5_000"),
    ),
    Case(
        "PrioritizedReplay", "per_dqn_cartpole", _collecting("PrioritizedReplay.capacity = 5_000")
    ),
    Case("SequenceReplay", "r2d2_memory", _collecting("SequenceReplay.capacity = 2_000")),
    Case("UnrollQueue", "ppo_cartpole", _collecting()),
    Case(
        "SeededReplay",
        "dqn_cartpole",
        _collecting(
            "Experiment.deterministic = True",
            "SeededReplay.capacity = 5_000",
            "Reporting.steps = 5_000",  # Else they are a hundredth of all.
        ),
        ways=(ONE_PROCESS,),  # Jobs are never deterministic.
    ),
    Case(
        "RecordedReplay",
        "bc_cartpole",
        (
            "RecordedReplay.path = '{recorded}'",
            f"Experiment.train_steps = {_ENDLESS}",
            "Evaluation.interval = 0",
            "Evaluation.target_return = None",
        ),
        ways=(ONE_PROCESS,),
        recorded=True,
    ),
    Case(
        "MixedReplay",
        "dqn_cartpole",
        _collecting(
            "Experiment.replay = @MixedReplay()",
            "MixedReplay.streams = [@LaneReplay(), @RecordedReplay()]",
            "MixedReplay.weights = [3, 1]",
            "LaneReplay.capacity = 5_000",
            "RecordedReplay.path = '{recorded}'",
        ),
        ways=(ONE_PROCESS,),
        recorded=True,
    ),
)
