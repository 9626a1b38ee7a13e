"""A launcher of toy jobs on Ray, like `toy_up`: `… toy_ray_up ADDRESS RUN SETTINGS 'KIND-N …' …`.

SETTINGS is a dict in JSON: of `RaySettings`, `resources` being those of every job, and `detach`.
"""

import dataclasses
import json
import pathlib
import sys

from actor_learner import ray_settings, run_directory
from actor_learner.jobs.presence import names
from actor_learner.launch import ray_driver, ray_supervisor
from tests.launch import toy_up


def main(address, run, settings, *descriptions):
    given = {"resources": {"CPU": 1.0}, **json.loads(settings)}
    resources, detach = given.pop("resources"), given.pop("detach", False)
    placing = ray_settings.RaySettings(**given)
    specs = [
        dataclasses.replace(toy_up.spec(run, description), resources=resources)
        for description in descriptions
    ]
    run_dir = run_directory.RunDirectory(run)
    cluster = ray_driver.RayRun(
        address, names.run_name(run), run_dir, runtime_env=placing.runtime_env
    )
    try:
        cluster.refuse_second()
        with run_dir.locked():
            cluster.begin(
                ray_supervisor.RunPlan(
                    names.run_name(run),
                    run,
                    specs,
                    str(pathlib.Path(run) / "registry"),
                    placing,
                    host="localhost",
                    files={"toys.gin": "shipped"},
                    files_from="/only/at/home",
                    program=sys.executable,
                    seconds={"final_seconds": 60.0},
                )
            )
        if detach:
            cluster.say_detached(sys.stderr)
            return 0
        return cluster.follow(sys.stderr, owner=True)
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
