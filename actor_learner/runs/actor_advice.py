"""Recommends an arrangement of actors, given what a turn costs with various numbers of lanes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

INLINE, THREADED, REMOTE = "inline", "threaded", "remote"

_NEARLY_BEST = 0.8  # Share of the best rate that is enough: further lanes are not worth having.
_MUCH_INFERENCE = 0.25  # Share of a turn: less is not worth hiding behind stepping.
_LARGEST_RING = 16


@dataclasses.dataclass(frozen=True)
class Measured:
    """The seconds that an actor spends on one step of all lanes.

    Attributes:
      lanes: How many lanes were stepped.
      stepping: Seconds in the environment.
      inferring: Seconds in the policy.
      writing: Seconds in observers, and waiting for the server's confirmation.
      steps_per_second: Environment steps per second, over all lanes.
    """

    lanes: int
    stepping: float
    inferring: float
    writing: float
    steps_per_second: float

    @property
    def total(self) -> float:
        return self.stepping + self.inferring + self.writing


@dataclasses.dataclass(frozen=True)
class Advice:
    """The recommended arrangement of actors.

    Attributes:
      lanes: Lanes of each group.
      ring_size: Groups that an actor rotates through.
      inference: INLINE, THREADED or REMOTE.
      actors: Number of actor processes.
      reasons: The reasons, a sentence for each.
    """

    lanes: int
    ring_size: int
    inference: str
    actors: int
    reasons: Sequence[str]


def advise(measured: Sequence[Measured], cores: int) -> Advice:
    """Recommends lanes before anything else, and further actors only where lanes do not help.

    Args:
      measured: At least one measurement, each with a different number of lanes.
      cores: Cores of the machine; one of them is the learner's.
    """
    best = max(each.steps_per_second for each in measured)
    good = [each for each in measured if each.steps_per_second >= _NEARLY_BEST * best]
    chosen = min(good, key=lambda each: each.lanes)
    reasons = [_lanes_reason(measured, chosen)]
    ring_size, inference = _choose_inference(chosen, reasons)
    actors = _choose_actors(chosen, cores, reasons)
    return Advice(chosen.lanes, ring_size, inference, actors, reasons)


def _lanes_reason(measured: Sequence[Measured], chosen: Measured) -> str:
    if len(measured) == 1:
        return f"only {chosen.lanes} lanes were measured"
    fewest = min(measured, key=lambda each: each.lanes)
    if chosen is fewest:
        return (
            f"more than {chosen.lanes} lane{'' if chosen.lanes == 1 else 's'} do not pay: the time "
            "of a step grows with them"
        )
    gain = chosen.steps_per_second / fewest.steps_per_second
    return f"{chosen.lanes} lanes make {gain:.1f} × the steps per second of {fewest.lanes}"


def _choose_inference(chosen: Measured, reasons: list[str]) -> tuple[int, str]:
    share = chosen.inferring / chosen.total
    if share < _MUCH_INFERENCE or not chosen.stepping:
        reasons.append(f"inference takes {share:.0%} of a step: it is best done inline")
        return 1, INLINE
    if chosen.inferring <= chosen.stepping:
        reasons.append(
            f"inference takes {share:.0%} of a step, less than stepping: a second thread hides it "
            "where the environment releases the GIL"
        )
        return 2, THREADED
    ring_size = min(_LARGEST_RING, math.ceil(chosen.inferring / chosen.stepping) + 1)
    reasons.append(
        f"inference takes {share:.0%} of a step, {chosen.inferring / chosen.stepping:.1f} × as "
        "long as stepping: policy jobs can serve several actors at once, while each steps the "
        "other groups of its ring"
    )
    return ring_size, REMOTE


def _choose_actors(chosen: Measured, cores: int, reasons: list[str]) -> int:
    share = chosen.stepping / chosen.total
    if share < 0.5:
        reasons.append(
            f"stepping takes {share:.0%} of a step: further actors would mostly repeat the rest of "
            "it. Add some only if the learner still waits"
        )
        return 1
    reasons.append(
        f"stepping takes {share:.0%} of a step, and each process steps on its own: one actor for "
        f"each of the {cores} cores but the learner's, as long as the learner waits for experience"
    )
    return max(1, cores - 1)
