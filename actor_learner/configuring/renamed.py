"""Parameters that have another name by now, so that an old gin file is told the new one."""

from __future__ import annotations

_PARAMETERS = {
    ("Experiment", "target_return"): "Evaluation.target_return",
    ("Experiment", "evaluation_interval"): "Evaluation.interval",
    ("Experiment", "evaluation_episodes"): "Evaluation.episodes",
    ("Experiment", "evaluation_lanes"): "Evaluation.lanes",
    ("Experiment", "checkpoint_seconds"): "Checkpoints.seconds",
    ("Experiment", "save_replay"): "Checkpoints.save_replay",
    ("Experiment", "replay_checkpoint_seconds"): "Checkpoints.replay_seconds",
    ("Experiment", "report_seconds"): "Reporting.seconds",
    ("Experiment", "metrics_window"): "Reporting.window",
    ("Experiment", "publish_seconds"): "Staleness.publish_seconds",
    ("Experiment", "max_version_lag"): "Staleness.max_version_lag",
    ("Experiment", "when_lagging"): "Staleness.when_lagging",
    ("Jobs", "resources"): "Ray.resources",
}


def new_name(selector: str, parameter: str) -> str | None:
    """The present name of a parameter that had another one; None if it never had."""
    return _PARAMETERS.get((selector, parameter))
