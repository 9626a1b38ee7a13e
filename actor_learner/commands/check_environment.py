"""`actor-learner check-env`: look for mistakes in an environment."""

from __future__ import annotations

import os
import tempfile

from actor_learner import import_path
from actor_learner.reporting import process_output

OK, FAILED = 0, 1


def run(env_id: str, *, num_steps: int) -> int:
    """Prints the report; returns 1 if anything is wrong. Notes alone are no violation."""
    import_path.extend([os.getcwd()])
    with (
        tempfile.TemporaryDirectory() as directory,
        process_output.capture_native_output(os.path.join(directory, "log")) as output,
    ):
        with output.quiet_imports():
            from actor_learner.environments import checks
        findings = checks.check_environment(env_id, num_steps=num_steps)
        print(checks.format_report(env_id, findings))
    return FAILED if any(not finding.startswith("note:") for finding in findings) else OK
