"""A real Ray cluster of several nodes on this machine, all on the loopback address."""

import contextlib
import json
import pathlib
import subprocess
import sys

import psutil
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Ray's own way to use the loopback address only; its name tells where Ray does so by itself.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextlib.contextmanager
def running():
    """A head that runs no jobs; tests add nodes."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOOPBACK, "PYTHONPATH": str(ROOT)}.items():
            patch.setenv(name, value)
        from ray import cluster_utils

        made = cluster_utils.Cluster()
        add_node(made, 0)
        try:
            yield made
        finally:
            made.shutdown()


def add_node(cluster, cpus, *, gpus=0, memory=None, **resources):
    """Adds a node, trying again where a busy machine takes longer than Ray itself waits."""
    for attempts_left in (2, 1, 0):
        try:
            return cluster.add_node(
                num_cpus=cpus,
                num_gpus=gpus,
                node_ip_address="127.0.0.1",
                include_dashboard=False,
                resources=resources,
                **({} if memory is None else {"memory": memory}),
            )
        except Exception as error:  # Ray raises no type of its own.
            if "timed out during startup" not in str(error) or not attempts_left:
                raise


def launch(cluster, run, *descriptions, **settings):
    """Starts toy jobs on the cluster, under a launcher of its own process."""
    run.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.launch.toy_ray_up"),
            *(cluster.address, str(run), json.dumps(settings), *descriptions),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def attach(run, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", "actor_learner.cli", "up", f"--attach={run}", *flags],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def supervisor_of(run):
    """The process of a run's supervisor, which writes to the run's directory."""
    (found,) = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith("ray::RaySupervisor")
        and any(str(run) in file.path for file in process.open_files())
    ]
    return found
