"""A run under way while actors come and go, jobs are killed, and registry and replay fail it."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
import redis

from actor_learner.jobs import states
from tests.jobs import logged_run
from tests.launch import processes
from tests.naming import conftest as servers

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def registry():
    """URL and process id of a Redis server."""
    # A short path: those of sockets are limited to a hundred characters or so.
    with tempfile.TemporaryDirectory(prefix="elastic-") as directory:
        port = servers.free_port()
        with servers.redis_server(directory, port):
            url = f"redis://127.0.0.1:{port}/0"
            with redis.Redis.from_url(url) as client:
                pid = client.info()["process_id"]
            yield url, pid


def scale(run, actors):
    subprocess.run(
        [
            *(sys.executable, "-m", "actor_learner.cli", "scale", str(run.run_dir)),
            *(f"--actors={actors}", f"--registry={run.registry}"),
        ],
        env=run.environment,
        check=True,
        timeout=120,
    )


@contextlib.contextmanager
def taken(port):
    """Has the port taken by somebody else."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        processes.wait_until(lambda: _bound(other, port), f"port {port} is free")
        other.listen()
        yield


def _bound(other, port):
    with contextlib.suppress(OSError):
        other.bind(("0.0.0.0", port))
        return True
    return False


def test_every_step_counts_once_whatever_happens_and_a_finished_run_can_be_extended(
    tmp_path, registry
):
    """One run, since starting processes is what takes the time."""
    seed = int(os.environ.get("FAULT_SEED", random.randrange(2**32)))
    print("to repeat the moments: FAULT_SEED =", seed)
    chance = random.Random(seed)
    url, redis_pid = registry
    run = logged_run.LoggedRun(tmp_path, url)
    try:
        run.up("--actors=1", "--evaluators=0", environment_steps=1_000_000)
        run.wait(lambda: run.environment_steps() > 300, "it trains")

        # Two actors are added, one dies at some moment, and one is taken away.
        scale(run, 2)
        run.wait(lambda: run.is_running("actor", 1), "an actor has joined")
        run.wait(lambda: run.status("learner").details["actors"] == 2, "the learner knows both")
        run.wait_for_steps(chance.randrange(100, 300))
        before = run.status("actor", 1)
        os.kill(before.pid, signal.SIGKILL)
        run.wait(
            lambda: (
                run.is_running("actor", 1)
                and run.status("actor", 1).incarnation != before.incarnation
            ),
            "it is back",
        )
        run.wait_for_steps(chance.randrange(100, 300))
        scale(run, 1)
        run.wait(lambda: run.status("actor", 1).state == states.COMPLETED, "it has left")

        # The registry does not answer for a while: nobody notices but those who look for others.
        counted = run.environment_steps()
        os.kill(redis_pid, signal.SIGSTOP)
        try:
            processes.wait_until(
                lambda: run.steps.stat().st_size > counted + 1_000, "work goes on without it"
            )
        finally:
            os.kill(redis_pid, signal.SIGCONT)
        run.wait_for_steps(chance.randrange(100, 300))

        # The replay dies, and its port is taken when it comes back: all have to move to another.
        moved = {kind: run.status(kind) for kind in ("replay", "learner", "actor")}
        port = int(run.controller._names.get("logged/replay_port"))
        os.kill(moved["replay"].pid, signal.SIGKILL)
        with taken(port):
            for kind, earlier in moved.items():
                run.wait(
                    lambda k=kind, e=earlier: (
                        run.is_running(k) and run.status(k).incarnation != e.incarnation
                    ),
                    f"{kind} has moved",
                )
        assert int(run.controller._names.get("logged/replay_port")) != port
        run.wait_for_steps(chance.randrange(100, 300))

        run.enough.touch()
        counted = run.require_exact_counts()
        processes.wait_until_gone(processes.with_word(str(run.run_dir)))

        # Finished, and then extended: the note that training is done is of other settings.
        run.enough.unlink()
        run.up("--actors=1", "--evaluators=0", environment_steps=counted + 500)
        assert run.require_exact_counts() >= counted + 500
    finally:
        run.close()
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))
