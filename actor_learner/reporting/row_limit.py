"""How many lines of metrics, and summaries, a long run writes."""

from __future__ import annotations

from actor_learner.support import configurable, errors


@configurable.register
def row_limit(dense: int = 20_000) -> int:
    """From how many lines of metrics, or summaries, on a run writes fewer of them per hour.

    Two lines are never closer than the seconds of training so far, divided by this number. With a
    line per second (`Reporting.seconds`) that changes nothing for the first five and a half
    hours; then the lines become fewer and fewer: 49,000 after a day, 88,000 after a week, one every
    30 seconds by then. `metrics.jsonl`, `metrics.csv` and TensorBoard's charts grow with them. In
    the same way two summaries of the learner or of an actor are never closer than the train steps
    so far, divided by this number: with `Learner.summary_interval = 1_000` they become fewer from
    20 million train steps on.

    Args:
      dense: Lines, or summaries; a very large number writes as many per hour for ever.

    Raises:
      errors.ConfigError: If it is below 1.
    """
    if dense < 1:
        raise errors.ConfigError(f"row_limit.dense must be at least 1, got {dense!r}")
    return dense
