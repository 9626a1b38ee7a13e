"""Refuses, at the start of a run, tables that would block it."""

from __future__ import annotations

import reverb

from actor_learner import plan as plan_lib
from actor_learner.support import errors


def refuse_unfit(table: reverb.Table, plan: plan_lib.Plan) -> None:
    """Refuses a table at which actors and learner would wait for each other.

    Raises:
      errors.ConfigError: If they would.
    """
    if table.name == plan.episode_table:
        return  # Whoever reads it, no learner waits for it, and no actor.
    info = table.info
    limiter = info.rate_limiter_info
    limited = limiter.max_diff < 1e300 or limiter.min_diff > -1e300
    if limited and plan.group_steps is None:
        raise errors.ConfigError(
            f"table '{table.name}' limits samples per insert, but Experiment.updates_per_step sets "
            "the pace: with two limits actors and learner can wait for each other, and one process "
            "for itself. Use @min_size()"
        )
    runs_dry = info.max_times_sampled > 0 and not plan.stream.keeps_items
    if runs_dry and plan.group_steps is None:
        raise errors.ConfigError(
            f"table '{table.name}' removes an item after {info.max_times_sampled} samples "
            "(max_times_sampled), but Experiment.updates_per_step sets how often experience is "
            "learned from: the table would run dry, and the learner wait for steps that are "
            "collected only after its own. Leave max_times_sampled out; algorithms that use every "
            "step once have @UnrollQueue()"
        )
    if limiter.min_size_to_sample > info.max_size:
        raise errors.ConfigError(
            f"table '{table.name}' can never be sampled: its rate limiter wants "
            f"{limiter.min_size_to_sample} items first, and it holds {info.max_size} at most. "
            "Raise its capacity, or lower min_size, which counts items, each of which may hold "
            "several transitions"
        )
    if info.sampler_options.HasField("prioritized") and not plan.stream.weighted:
        raise errors.ConfigError(
            f"table '{table.name}' samples by priority, but {type(plan.stream).__name__} updates "
            "none: use @PrioritizedReplay() as Experiment.replay, or @uniform_table"
        )
