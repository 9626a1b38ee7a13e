"""A launcher of toy jobs on Ray: like `toy_up`, after the cluster's address and CPUs per job."""

import dataclasses
import pathlib
import sys

from actor_learner import run_directory
from actor_learner.jobs.presence import names
from actor_learner.launch import ray, run_jobs
from tests.launch import toy_up


def main(address, cpus, run, *descriptions):
    specs = [toy_up.spec(run, description) for description in descriptions]
    launcher = ray.RayLauncher(
        address,
        namespace="toy",
        files={"toys.gin": "shipped"},
        files_from="/only/at/home",
    )
    try:
        return run_jobs.run_jobs(
            [dataclasses.replace(spec, resources={"CPU": float(cpus)}) for spec in specs],
            launcher,
            run=names.run_name(run),
            run_dir=run_directory.RunDirectory(run),
            registry=str(pathlib.Path(run) / "registry"),
            terminal=sys.stderr,
        )
    finally:
        launcher.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
