"""Runs `actor-learner` with a launcher that restarts jobs at once: `-m tests.jobs.hasty_up`."""

import functools
import sys

from actor_learner.launch import restarts

if __name__ == "__main__":
    restarts.RestartPolicy = functools.partial(restarts.RestartPolicy, max_delay=0.1)
    from actor_learner import cli

    sys.exit(cli.main())
