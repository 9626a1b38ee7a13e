"""Workers and controllers over the registries that reach other processes and machines."""

import tempfile

import pytest

from actor_learner.jobs import controller, states
from actor_learner.naming import connect
from tests.jobs import toy_workers
from tests.launch import processes
from tests.naming import conftest as servers

DEADLINE = toy_workers.DEADLINE


@pytest.fixture
def redis_place():
    # A short path: those of sockets are limited to a hundred characters or so.
    with tempfile.TemporaryDirectory(prefix="jobs-") as directory:
        yield directory, servers.free_port()


def live_and_obey(url):
    running = toy_workers.Running(toy_workers.Puppet(), names=connect.connect(url))
    with connect.connect(url) as names:
        commander = controller.Controller(names, "run")
        commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
        assert commander.send("pause")["actor-0"].state == states.PAUSED
        assert commander.send("exit")["actor-0"].error is None
        running.join()
        assert commander.worker("actor").state == states.COMPLETED
        assert set(names.find_subtree("run")) == {"run/jobs/actor/0/record"}  # Nothing else stays.


def test_commands_and_states_travel_through_files(tmp_path):
    live_and_obey(str(tmp_path / "registry"))


def test_commands_and_states_travel_through_redis(redis_place):
    directory, port = redis_place
    with servers.redis_server(directory, port):
        live_and_obey(f"redis://127.0.0.1:{port}/0")


def test_a_worker_works_on_while_its_registry_is_away_and_is_back_with_it(redis_place):
    directory, port = redis_place
    url = f"redis://127.0.0.1:{port}/0"
    puppet = toy_workers.Puppet()
    with servers.redis_server(directory, port):
        running = toy_workers.Running(puppet, names=connect.connect(url))
        with connect.connect(url) as names:
            commander = controller.Controller(names, "run")
            commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
    done = len(puppet.calls)
    for _ in range(3):
        puppet.tasks.put(lambda: None)
    processes.wait_until(lambda: len(puppet.calls) == done + 3, "it has worked on")
    puppet.contributed = {"message": "nothing lost"}
    with servers.redis_server(directory, port), connect.connect(url) as names:
        commander = controller.Controller(names, "run")
        processes.wait_until(
            lambda: [s.message for s in commander.workers()] == ["nothing lost"],
            "its status is back",
        )
        puppet.tasks.put(lambda: True)
        assert running.join() == states.COMPLETED
