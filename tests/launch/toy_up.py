"""A launcher of toy jobs: `python -m tests.launch.toy_up RUN [--SECONDS=N …] 'KIND-N FLAG …' …`."""

import pathlib
import sys

from actor_learner import run_directory
from actor_learner.jobs.presence import names
from actor_learner.launch import job_spec, local, restarts, run_jobs

POLICY = restarts.RestartPolicy(max_restarts=2, first_delay=0.01)
GRACE_SECONDS = 30.0


def spec(run, description):
    name, *flags = description.split()
    kind, _, index = name.partition("-")
    command = [sys.executable, "-m", "tests.launch.toy_job", kind, f"--run={run}"]
    return job_spec.JobSpec(
        kind,
        int(index),
        [*command, f"--index={index}", *flags],
        POLICY,
        grace_seconds=GRACE_SECONDS,
    )


def main(run, *arguments):
    """Settings are those of `run_jobs` that are numbers of seconds."""
    settings = dict(word[2:].split("=") for word in arguments if word.startswith("--"))
    return run_jobs.run_jobs(
        [spec(run, word) for word in arguments if not word.startswith("--")],
        local.LocalLauncher(),
        run=names.run_name(run),
        run_dir=run_directory.RunDirectory(run),
        registry=str(pathlib.Path(run) / "registry"),
        terminal=sys.stderr,
        **{"final_seconds": 60.0, **{name: float(text) for name, text in settings.items()}},
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
