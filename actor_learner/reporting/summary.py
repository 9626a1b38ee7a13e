"""The last lines of a training run: what it reached, where it is, and what to type next."""

from __future__ import annotations

import os
import pathlib
import shlex

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import errors, formatting

_HEADLINES = {
    "completed": "Finished",
    "target reached": "Target reached",
    "stopped": "Stopped by a trigger",
    "interrupted": "Stopped",
    "failed": "Failed",
}


def closing_lines(
    *,
    run_dir: str | os.PathLike,
    best: logger_lib.Row | None,
    environment_steps: int,
    train_steps: int,
    seconds: float,
    status: str,
    reason: str | None = None,
    log_path: str | os.PathLike | None = None,
    has_policies: bool = True,
    programs: str = "",
) -> list[str]:
    """What to print after training. Looks at nothing but its arguments.

    Args:
      run_dir: The run's directory; shell-quoted in the commands.
      best: The score of the best policy (`best_return`, and if known `best_return_std`,
        `best_episodes`, `best_environment_steps`), or None if there is none.
      environment_steps: Made so far, over all lanes.
      train_steps: Made so far.
      seconds: Since the run's start, resumed parts included.
      status: "completed", "target reached", "stopped", "interrupted" or "failed".
      reason: Why, in the user's words; ends the first line.
      log_path: Named after a failure.
      has_policies: Whether policies were exported.
      programs: Directory of the `actor-learner` program, with a final slash; empty if the shell
        finds it by itself.
    """
    if status not in _HEADLINES:
        raise errors.ActorLearnerError(
            f"status {status!r} of run '{run_dir}' is unknown; one of {sorted(_HEADLINES)}"
        )
    run = shlex.quote(os.fspath(run_dir))
    programs = shlex.quote(programs) if programs else ""
    resume = f"{programs}actor-learner train --resume {run}"
    headline = (
        f"{_HEADLINES[status]} at {formatting.count(environment_steps)} environment steps, "
        f"{formatting.count(train_steps)} train steps, after {formatting.duration(seconds)}"
    )
    lines = [f"{headline}: {reason}" if reason else headline]
    if status == "interrupted":
        lines.append(f"Resume with:  {resume}")
    if status == "failed" and log_path is not None:
        lines.append(f"Log:          {os.fspath(log_path)}")
    if best is not None:
        lines.append(f"Best return:  {_best(best)}")
        lines.append(f"Best policy:  {pathlib.Path(run_dir) / 'best'}")
    else:
        lines.append("Best return:  none, no evaluation has rated a policy")
        if has_policies:
            lines.append(f"Policies:     {pathlib.Path(run_dir) / 'policies'}")
    if best is not None or has_policies:
        lines.append(f"Evaluate:     {programs}actor-learner eval {run}")
    if status != "interrupted":
        lines.append(f"Resume:       {resume}")
    lines.append(f"View:         {programs}tensorboard --logdir {run}")
    return lines


def _best(best: logger_lib.Row) -> str:
    text = formatting.mean_and_std(best["best_return"], best.get("best_return_std"))
    if "best_episodes" in best:
        episodes = int(best["best_episodes"])
        text += f" over {formatting.count(episodes)} episode{'' if episodes == 1 else 's'}"
    if "best_environment_steps" in best:
        text += f", at environment step {formatting.count(best['best_environment_steps'])}"
    return text
