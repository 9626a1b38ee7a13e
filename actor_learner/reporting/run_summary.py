"""The last lines of a run whose metrics are in its directory, whoever has trained it."""

from __future__ import annotations

import json

from actor_learner import run_directory
from actor_learner.reporting import jsonl, summary


def closing_lines(
    run_dir: run_directory.RunDirectory, status: str, next_steps: summary.NextSteps
) -> list[str]:
    """What `summary.closing_lines` says of a run, from its lines of metrics; nothing without any.

    Args:
      run_dir: The run's directory.
      status: As of `summary.closing_lines`.
      next_steps: What to type next.
    """
    rows = jsonl.read_rows(run_dir.metrics_jsonl) if run_dir.metrics_jsonl.exists() else []
    if not rows:
        return []
    reason = None
    if status == "completed" and run_dir.completion.exists():
        note = json.loads(run_dir.completion.read_text())
        status = note.get("status", status)  # An earlier release has left none.
        reason = None if status == "completed" else note["reason"]
    latest = {key: value for row in rows for key, value in row.items()}
    return summary.closing_lines(
        run_dir=run_dir.path,
        best=latest if "best_return" in latest else None,
        environment_steps=int(latest.get("environment_steps", 0)),
        train_steps=int(latest.get("train_steps", 0)),
        seconds=float(latest.get("seconds", 0.0)),
        status=status,
        reason=reason,
        has_policies=(run_dir.policies / "greedy_policy").is_dir(),
        next_steps=next_steps,
    )
