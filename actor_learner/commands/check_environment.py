"""`actor-learner check-env`: look for mistakes in an environment."""

from __future__ import annotations

import os

OK, FAILED = 0, 1


def run(env_id: str, *, num_steps: int) -> int:
    """Prints the report; returns 1 if anything is wrong."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from actor_learner.environments import checks

    violations = checks.check_environment(env_id, num_steps=num_steps)
    print(checks.format_report(env_id, violations))
    return FAILED if violations else OK
