"""The one interface behind which every metric file, chart and view takes its rows."""

from __future__ import annotations

import numbers
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Union, runtime_checkable

from actor_learner.support import errors

Value = Union[int, float, str]
Row = Mapping[str, Value]
"""One flat record of a run. A value that is not known is absent, never NaN-filled.

Keys in use: `seconds` (since the run's start, continued on resume), `environment_steps`,
`train_steps`, `episodes`, `return` (mean over the recent window), `min_return`, `max_return`,
`episode_length`, `loss`, `replay_size`, `samples_per_insert`, `environment_steps_per_second`,
`train_steps_per_second`, `epsilon`, and on evaluations `eval_return`, `eval_return_std`,
`eval_episodes`, and of the best policy so far `best_return`, `best_return_std`, `best_episodes`,
`best_environment_steps`. Any other key is carried along.
"""


@runtime_checkable
class Logger(Protocol):
    """Takes rows until closed. `write` neither keeps nor changes the row it is given.

    Loggers of `Reporting.loggers` are made in every process of a run, and used in one, that of the
    learner. There `open(context)` is called first, with a `RunContext`, if they have it: what costs
    something, or must exist once, belongs there rather than in the constructor.
    """

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class RunContext(NamedTuple):
    """What a logger may want to know of the run whose rows it will get.

    Attributes:
      run_dir: The run's directory.
      run_id: 32 hexadecimal digits, the same when the run is resumed.
      environment_steps: Where the run goes on; 0 for a new one.
      description: What `run.json` says: seed, versions, commit, ...
      settings: Every value in use, `{"dqn.learning_rate": "0.001"}`, as far as gin knows it.
    """

    run_dir: pathlib.Path
    run_id: str
    environment_steps: int
    description: Mapping[str, Any]
    settings: Mapping[str, str]


class Loggers:
    """Hands every row to each of several loggers, in order.

    A logger that raises does not keep the row from the others: all are called, then the first error
    is raised again as an `errors.ActorLearnerError` that names the logger, with the original as its
    `__cause__`. The same holds for `close`.
    """

    def __init__(self, loggers: Iterable[Logger]):
        self._loggers = tuple(loggers)

    def write(self, row: Row) -> None:
        self._call_each("write", row)

    def close(self) -> None:
        self._call_each("close")

    def _call_each(self, method: str, *args: Row) -> None:
        failures = []
        for logger in self._loggers:
            try:
                getattr(logger, method)(*args)
            except Exception as failure:  # Raised again below.
                failures.append((logger, failure))
        if failures:
            logger, cause = failures[0]
            others = f" ({len(failures) - 1} more failed as well)" if len(failures) > 1 else ""
            raise errors.ActorLearnerError(
                f"{type(logger).__name__}.{method} failed with {type(cause).__name__}: "
                f"{cause}{others}"
            ) from cause


def plain_row(row: Row) -> dict[str, Value]:
    """Copies `row` with NumPy and 0-d tensor scalars turned into Python's int and float.

    Raises:
      errors.ActorLearnerError: If a value is neither a number nor a string.
    """
    return {key: _plain_value(key, value) for key, value in row.items()}


def _plain_value(key: str, value: object) -> Value:
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, numbers.Number) and hasattr(value, "numpy"):
        value = value.numpy()  # An eager tensor.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # A NumPy scalar or 0-d array.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise errors.ActorLearnerError(
        f"metric '{key}' is {value!r} of type {type(value).__name__}; a row holds single numbers "
        "and strings only: reduce it (mean, sum) or leave the key out when there is no value"
    )


def rows_up_to(rows: Sequence[Row], environment_steps: float) -> list[Row]:
    """The rows at or before `environment_steps`, in order.

    A row without `environment_steps` shares the fate of the row before it.
    """
    kept = []
    keep = True
    for row in rows:
        if "environment_steps" in row:
            keep = float(row["environment_steps"]) <= environment_steps
        if keep:
            kept.append(row)
    return kept
