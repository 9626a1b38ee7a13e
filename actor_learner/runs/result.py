"""The outcome of a training run, read from its directory."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from actor_learner import run_directory
from actor_learner.reporting import jsonl

if TYPE_CHECKING:
    from actor_learner.runs import loaded_policy


class Best(NamedTuple):
    """The score of the best policy, on episodes that were not used to choose it."""

    mean: float
    std: float | None
    episodes: int | None
    environment_steps: int | None


class Curve(NamedTuple):
    """The evaluations of a run, oldest first; every field is `[evaluations]`."""

    environment_steps: np.ndarray
    train_steps: np.ndarray
    mean: np.ndarray
    std: np.ndarray


class Result:
    """The outcome of a run; `Experiment.train` returns it, and `Result("runs/x")` reads any run.

    Args:
      run_dir: The directory of a run, started from Python or by a command.
      status: How training ended: "completed", "target reached", "stopped" (by a trigger). None
        where it is not known.
      reason: Why it ended early; None if it did not.
    """

    def __init__(
        self, run_dir: str | os.PathLike, status: str | None = None, reason: str | None = None
    ) -> None:
        self.run_dir = run_directory.RunDirectory.existing(os.fspath(run_dir)).path
        self.status = status
        self.reason = reason

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """All lines of metrics, oldest first: `pandas.DataFrame(result.rows)`."""
        path = run_directory.RunDirectory(self.run_dir).metrics_jsonl
        return jsonl.read_rows(path) if path.exists() else []

    @property
    def best(self) -> Best | None:
        """The score of the best policy; None if no evaluation has rated one."""
        for row in reversed(self.rows):
            if "best_return" in row:
                return Best(
                    row["best_return"],
                    row.get("best_return_std"),
                    row.get("best_episodes"),
                    row.get("best_environment_steps"),
                )
        return None

    @property
    def curve(self) -> Curve:
        """The mean return of the greedy policy, evaluation by evaluation."""
        rated = [row for row in self.rows if "eval_return" in row]
        return Curve(
            np.array([row["environment_steps"] for row in rated], np.int64),
            np.array([row["train_steps"] for row in rated], np.int64),
            np.array([row["eval_return"] for row in rated], np.float64),
            np.array([row.get("eval_return_std", np.nan) for row in rated], np.float64),
        )

    @functools.cached_property
    def policy(self) -> loaded_policy.LoadedPolicy:
        """The best policy, to act with; see `load_policy`."""
        from actor_learner.runs import loaded_policy

        return loaded_policy.load_policy(self.run_dir)

    def __repr__(self) -> str:
        best = self.best
        score = "no evaluation" if best is None else f"best return {best.mean:.4g}"
        how = f", {self.status}" if self.status else ""
        return f"Result({os.fspath(self.run_dir)!r}: {score}{how})"
