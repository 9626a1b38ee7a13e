"""Parameters that have another name by now, so that an old gin file is told the new one."""

from __future__ import annotations

_PARAMETERS = {
    ("Experiment", "target_return"): "Evaluation.target_return",
    ("Experiment", "evaluation_interval"): "Evaluation.interval",
    ("Experiment", "evaluation_episodes"): "Evaluation.episodes",
    ("Experiment", "evaluation_lanes"): "Evaluation.lanes",
}


def new_name(selector: str, parameter: str) -> str | None:
    """The present name of a parameter that had another one; None if it never had."""
    return _PARAMETERS.get((selector, parameter))
