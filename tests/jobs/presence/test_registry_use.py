"""What jobs and controllers make of the registry: little, and never a reason to end."""

import pathlib
import tempfile
import threading
import time
import uuid

import pytest
import redis

from actor_learner.jobs import controller, states, status
from actor_learner.jobs.presence import names
from actor_learner.naming import connect, memory, name_errors
from actor_learner.naming import redis as redis_registry
from tests.jobs import toy_workers
from tests.launch import processes
from tests.naming import conftest as servers

DEADLINE = toy_workers.DEADLINE


class CountingRegistry(memory.MemoryRegistry):
    """Notes when a backend is asked for anything."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.operations = []

    def _note(self, what, *arguments):
        self.operations.append((time.monotonic(), what))
        return getattr(memory.MemoryRegistry, what)(self, *arguments)

    def _create(self, *arguments):
        return self._note("_create", *arguments)

    def _read(self, *arguments):
        return self._note("_read", *arguments)

    def _renew_all(self, wanted, owner):
        self.operations.append((time.monotonic(), "_renew_all"))
        return [memory.MemoryRegistry._renew(self, name, owner, None) for name in wanted]

    def _renew(self, *arguments):
        return self._note("_renew", *arguments)

    def _remove(self, *arguments):
        return self._note("_remove", *arguments)

    def _take(self, *arguments):
        return self._note("_take", *arguments)

    def _scan(self, *arguments):
        return self._note("_scan", *arguments)

    def _clear(self, *arguments):
        return self._note("_clear", *arguments)


@pytest.mark.parametrize("serves", [False, True])
def test_an_idle_job_asks_its_registry_for_one_thing_per_heartbeat(serves):
    """With the default of five seconds: one operation every five seconds, asked or not."""
    space = uuid.uuid4().hex
    registry = CountingRegistry(space)
    puppet = toy_workers.Puppet()
    if serves:
        puppet.on_configure = lambda: puppet.job.publish_address("10.0.0.7:8008")
    running = toy_workers.Running(
        puppet, names=registry, heartbeat_seconds=5.0, lost_after_seconds=15.0
    )
    with controller.Controller(memory.MemoryRegistry(space), "run") as commander:
        commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
        began, already = time.monotonic(), len(registry.operations)

        def beats():
            return [at for at, what in registry.operations[already:] if what == "_renew_all"]

        while len(beats()) < 3:  # Others ask the job itself meanwhile.
            assert time.monotonic() < began + DEADLINE, registry.operations
            commander.workers()
            commander.send("ping")
            time.sleep(0.1)
        made, times = registry.operations[already:], beats()
        # And one for its record, which says after the first heartbeat that it runs.
        assert len(made) == len(times) + 1
        assert all(later - earlier >= 4.9 for earlier, later in zip(times, times[1:]))
        commander.send("exit")
    running.join()


def test_the_record_follows_the_state_of_a_job():
    registry = memory.MemoryRegistry(uuid.uuid4().hex)
    running = toy_workers.Running(toy_workers.Puppet(), names=registry)

    def recorded():
        """The state in its record; None before there is one."""
        try:
            return status.Status.from_json(registry.get(names.record("run", "actor", 0))).state
        except name_errors.NameNotFoundError:
            return None

    with controller.Controller(registry, "run") as commander:
        for command, state in ((None, states.RUNNING), ("pause", states.PAUSED)):
            commander.wait_for(states.LIVE, ["actor-0"], timeout=DEADLINE)
            if command is not None:
                commander.send(command)
            processes.wait_until(lambda wanted=state: recorded() == wanted, f"it says {state}")
        commander.send("exit")
        running.join()
        assert recorded() == states.COMPLETED


@pytest.fixture(params=["file", "redis"])
def shared(request, tmp_path):
    """URL of a real registry, and what puts bytes under a name of it."""
    if request.param == "file":
        directory = tmp_path / "registry"

        def put(name, data):
            (directory / name.replace("/", "#")).write_bytes(data)

        yield str(directory), put
        return
    with tempfile.TemporaryDirectory(prefix="jobs-") as directory:
        port = servers.free_port()
        with servers.redis_server(directory, port):
            url = f"redis://127.0.0.1:{port}/0"
            with redis.Redis.from_url(url) as client:
                yield url, lambda name, data: client.set(redis_registry.KEY_PREFIX + name, data)


GARBAGE = [b"", b"\xff\xfe", b"nonsense", b'{"kind": 5', b"null", b"[" * 50_000]
TEXTS = ["", "nonsense", "{}", "[]", '{"kind": "actor", "index": "0", "state": 3}', "[" * 9_000]


def test_damaged_entries_end_neither_jobs_nor_controllers(shared, caplog):
    url, put = shared
    running = toy_workers.Running(
        toy_workers.Puppet(), names=connect.connect(url), heartbeat_seconds=0.05
    )
    with connect.connect(url) as registry, controller.Controller(registry, "run") as commander:
        commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
        for number, garbage in enumerate(GARBAGE):
            for what in (names.lease, names.record):
                put(what("run", "learner", number), garbage)
            put(f"run/jobs/painter/{number}/other", garbage)
            # Its own entries, too: the lease is taken again, the record written in the end.
            put(names.lease("run", "actor", 0), garbage)
            put(names.record("run", "actor", 0), garbage)
            processes.wait_until(
                lambda: [s.describe() for s in commander.workers()][:1] == ["actor-0: running"],
                "the job is seen again",
            )
        for number, text in enumerate(TEXTS):
            for what in (names.lease, names.record):
                registry.add(what("run", "evaluator", number), text, replace=True)
        registry.add("run/jobs/actor/one/lease", "x")
        registry.add(names.record("run", "painter", 0), '{"kind": "actor", "index": 0}')
        assert [status.name for status in commander.workers()] == ["actor-0"]
        assert commander.send("pause", timeout=DEADLINE)["actor-0"].state == states.PAUSED
        said = [record.getMessage() for record in caplog.records]
        # The job and the controller each have a registry object that says it once.
        assert max(map(said.count, said)) <= 2, "a warning was repeated"
        commander.forget_ended()
        commander.send("exit")
        assert running.join() == states.COMPLETED
        assert commander.worker("actor").state == states.COMPLETED


def test_a_directory_where_an_entry_belongs_is_said_and_does_not_end_a_job(tmp_path):
    url = str(tmp_path / "registry")
    running = toy_workers.Running(
        toy_workers.Puppet(), names=connect.connect(url), heartbeat_seconds=0.05
    )
    with connect.connect(url) as registry, controller.Controller(registry, "run") as commander:
        commander.wait_for(states.RUNNING, ["actor-0"], timeout=DEADLINE)
        pathlib.Path(url, "run#jobs#learner#0#lease").mkdir()
        seen = threading.Event()
        running.worker.tasks.put(lambda: seen.set())
        assert seen.wait(DEADLINE)
        assert [status.name for status in commander.workers()] == ["actor-0"]
        pathlib.Path(url, "run#jobs#learner#0#lease").rmdir()
        commander.send("exit")
        running.join()
