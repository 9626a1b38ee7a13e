"""The last lines of a training run: what it reached, where it is, and what to type next."""

from __future__ import annotations

import os
import pathlib
import shlex
from typing import NamedTuple

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import errors, formatting

_HEADLINES = {
    "completed": "Finished",
    "target reached": "Target reached",
    "stopped": "Stopped by a trigger",
    "interrupted": "Stopped",
    "failed": "Failed",
}


class NextSteps(NamedTuple):
    """What a user types next, in the terms in which they began the run."""

    evaluate: str
    resume: str
    view: str

    @classmethod
    def commands(
        cls, run_dir: str | os.PathLike, programs: str = "", resume: str = "train"
    ) -> NextSteps:
        """Those of the shell.

        Args:
          run_dir: The run's directory, which is quoted.
          programs: Directory of the `actor-learner` program, with a final slash; empty if the shell
            finds it by itself.
          resume: The command that resumes.
        """
        run = shlex.quote(os.fspath(run_dir))
        programs = shlex.quote(programs) if programs else ""
        return cls(
            evaluate=f"{programs}actor-learner eval {run}",
            resume=f"{programs}actor-learner {resume} --resume {run}",
            view=f"{programs}tensorboard --logdir {run}",
        )

    @classmethod
    def in_python(cls, run_dir: str | os.PathLike) -> NextSteps:
        """Those of a program or notebook."""
        run = os.fspath(run_dir)
        return cls(
            evaluate=f"actor_learner.load_policy({run!r}).act(observation)",
            resume=f"Experiment(...).train({run!r}, resume=True)",
            view=f"tensorboard --logdir {shlex.quote(run)}",
        )


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
    next_steps: NextSteps | None = None,
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
      next_steps: What to type next; None: the commands.
    """
    if status not in _HEADLINES:
        raise errors.ActorLearnerError(
            f"status {status!r} of run '{run_dir}' is unknown; one of {sorted(_HEADLINES)}"
        )
    then = NextSteps.commands(run_dir) if next_steps is None else next_steps
    headline = (
        f"{_HEADLINES[status]} at {formatting.count(environment_steps)} environment steps, "
        f"{formatting.count(train_steps)} train steps, after {formatting.duration(seconds)}"
    )
    lines = [f"{headline}: {reason}" if reason else headline]
    if status == "interrupted":
        lines.append(f"Resume with:  {then.resume}")
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
        lines.append(f"Evaluate:     {then.evaluate}")
    if status != "interrupted":
        lines.append(f"Resume:       {then.resume}")
    lines.append(f"View:         {then.view}")
    return lines


def _best(best: logger_lib.Row) -> str:
    text = formatting.mean_and_std(best["best_return"], best.get("best_return_std"))
    if "best_episodes" in best:
        episodes = int(best["best_episodes"])
        text += f" over {formatting.count(episodes)} episode{'' if episodes == 1 else 's'}"
    if "best_environment_steps" in best:
        text += f", at environment step {formatting.count(best['best_environment_steps'])}"
    return text
