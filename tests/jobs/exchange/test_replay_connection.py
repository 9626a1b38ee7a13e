"""Whoever does not fit the run is told why, before it writes anything."""

import os
import threading
import uuid

import gin
import pytest

import actor_learner
from actor_learner import run_directory
from actor_learner.jobs import job, main
from actor_learner.jobs.exchange import replay_connection
from actor_learner.naming import connect
from actor_learner.replay.server import server, tables
from actor_learner.support import errors, reverb_calls
from tests.jobs import job_processes, jobs_in_process

pytestmark = pytest.mark.timeout(600)


class Run:
    """A replay server in a process of its own, waiting for actors."""

    def __init__(self, directory):
        self.machine = job_processes.Machine(directory / "machine")
        self.path = self.machine.directory / "mine"
        self.path.mkdir()
        self.process = self.machine.start("replay", "--gin_file=dqn_cartpole", f"--run={self.path}")
        self.watch = job_processes.Watch(str(self.path / "registry"), "mine")
        self.watch.wait(lambda: self.watch.is_running("replay"), "it serves", [self.process])
        asking = job.Job("test", 0, "mine", self.watch.names)
        self.connection = replay_connection.ReplayConnection(asking)

    def items(self):
        """How many items actors have ever written."""
        (table,) = self.connection.contract["tables"]
        found = reverb_calls.fetch_table(self.connection.client, table, 30.0)
        return found.rate_limiter_info.insert_stats.completed

    def close(self):
        self.connection.close()
        self.process.kill()
        self.watch.names.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = Run(tmp_path_factory.mktemp("partners"))
    yield made
    made.close()


@pytest.fixture
def refused(run, monkeypatch, capfd):
    """Starts an actor of the run; returns what it says when it is refused."""
    monkeypatch.delenv(connect.ENVIRONMENT_VARIABLE, raising=False)

    def start(*flags, gin_file="dqn_cartpole"):
        code = main.run(["actor", f"--gin_file={gin_file}", f"--run={run.path}", *flags])
        said = capfd.readouterr().err
        assert code == 2, said
        assert "does not fit the run:" in said
        assert run.items() == 0
        return said

    yield start
    gin.clear_config()


def test_an_actor_of_another_algorithm_is_refused_as_a_process(run):
    process = run.machine.start("actor", "--gin_file=c51_cartpole", f"--run={run.path}")
    assert process.exit_code() == 2
    assert '" here, "DdqnAgent" in the run' in process.said
    assert run.items() == 0


def test_an_actor_in_another_environment_is_refused(refused):
    said = refused("--gin_param=GymnasiumEnvironment.env_id = 'Acrobot-v1'")
    assert "time step spec/observation/shape[0]: 6 here, 4 in the run" in said
    assert "action spec" in said


def test_an_evaluator_in_another_environment_is_refused(run, monkeypatch, capfd):
    monkeypatch.delenv(connect.ENVIRONMENT_VARIABLE, raising=False)
    binding = "--gin_param=GymnasiumEnvironment.env_id = 'Acrobot-v1'"
    code = main.run(["evaluator", "--gin_file=dqn_cartpole", f"--run={run.path}", binding])
    gin.clear_config()
    said = capfd.readouterr().err
    assert code == 2, said
    assert "the evaluation environment, which differs from the one that they are trained in" in said
    assert "observation: float32 of shape (6,) instead of float32 of shape (4,)" in said


def learner_refused(run, capfd, *flags):
    """Starts a learner of the run; returns what it says when it ends with code 2."""
    code = main.run(["learner", "--gin_file=dqn_cartpole", f"--run={run.path}", *flags])
    gin.clear_config()
    said = capfd.readouterr().err
    assert code == 2, said
    return said


def test_a_learner_that_is_to_begin_from_nothing_known_is_refused(run, monkeypatch, capfd):
    monkeypatch.delenv(connect.ENVIRONMENT_VARIABLE, raising=False)
    said = learner_refused(run, capfd, "--warm_start=/no/where")
    assert "WarmStart.source = '/no/where': cannot start from '/no/where'" in said


def test_a_second_learner_in_the_run_directory_is_refused_whatever_its_registry(
    run, tmp_path, capfd
):
    other = (f"--registry={tmp_path / 'registry'}", "--host=localhost")
    with run_directory.RunDirectory(run.path).locked():  # As the first learner does.
        said = learner_refused(run, capfd, *other)
    assert f"{run.path} is being trained by process {os.getpid()}" in said


def test_an_actor_with_other_lanes_is_refused(refused):
    said = refused("--gin_param=GymnasiumEnvironment.num_envs = 8")
    assert "lanes per actor: 8 here, 16 in the run" in said


def test_an_actor_of_another_version_is_refused(refused, monkeypatch):
    monkeypatch.setattr(actor_learner, "__version__", "99.0")
    assert 'package version: "99.0" here, "' in refused()


class Replay:
    """A replay job that says what the test wants."""

    def __init__(self, space, address="localhost:1", index=0, servers=1, run_id="ours"):
        self.job = jobs_in_process.make_job("replay", space, index, source=None)
        self.address = address
        self._servers, self._run_id = servers, run_id
        self.job.wire.handle(replay_connection.CONTRACT, self._answer)

    def _answer(self, request):
        contract = {"run id": self._run_id, "lanes per actor": 5}
        request.answer({"address": self.address, "contract": contract, "servers": self._servers})


def asking(space, index=0):
    return jobs_in_process.make_job("actor", space, index, source=None)


def test_what_is_joined_and_where_it_is_comes_over_the_wire():
    space = uuid.uuid4().hex
    replay = Replay(space)
    found = replay_connection.ReplayConnection(asking(space))
    assert (found.address, found.run_id, found.num_lanes) == (replay.address, "ours", 5)
    found.close()


def test_a_replay_job_is_waited_for_until_it_is_ready():
    space = uuid.uuid4().hex
    early = jobs_in_process.make_job("replay", space, source=None)  # It has no contract yet.
    contract = {"run id": "ours", "lanes per actor": 5}
    answer = {"address": "localhost:1", "contract": contract}
    timer = threading.Timer(
        0.5,
        lambda: early.wire.handle(
            replay_connection.CONTRACT, lambda request: request.answer(answer)
        ),
    )
    timer.start()
    found = replay_connection.ReplayConnection(asking(space), timeout_seconds=60.0)
    assert found.run_id == "ours"
    found.close()
    timer.join()


def test_a_replay_job_that_never_comes_is_not_waited_for_without_end():
    with pytest.raises(errors.JobTimeoutError, match="has waited .* for replay-0"):
        replay_connection.ReplayConnection(asking(uuid.uuid4().hex), timeout_seconds=0.2)


def test_one_that_never_gets_ready_is_not_waited_for_without_end():
    space = uuid.uuid4().hex
    jobs_in_process.make_job("replay", space, source=None)
    with pytest.raises(errors.JobTimeoutError, match="for the replay job to be ready: .*contract"):
        replay_connection.ReplayConnection(asking(space), timeout_seconds=0.5)


def test_waiting_ends_when_the_job_is_asked_to_end():
    waiting = asking(uuid.uuid4().hex)
    waiting.stopping.set()
    with pytest.raises(job.Stopping):
        replay_connection.ReplayConnection(waiting)


def test_a_server_that_is_elsewhere_by_now_is_told_from_one_that_is_only_silent(monkeypatch):
    monkeypatch.setattr(replay_connection, "_ASK_SECONDS", 0.0)
    space = uuid.uuid4().hex
    replay = Replay(space)
    found = replay_connection.ReplayConnection(asking(space))
    outage = errors.ReplayTimeoutError("silent")
    assert found.is_there()
    found.note_outage(outage)  # Nobody says that it is elsewhere.
    assert found.is_away and not found.is_there()
    replay.address = "10.0.0.7:8008"
    with pytest.raises(
        errors.ReplayMovedError, match="to 10.0.0.7:8008: actor-0 of run mine must be restarted"
    ):
        found.note_outage(outage)
    found.close()


def test_a_server_that_answers_again_is_used_again():
    space = uuid.uuid4().hex
    with server.ReplayServer([tables.uniform_table("experience", 10)]) as serving:
        Replay(space, serving.address)
        found = replay_connection.ReplayConnection(asking(space))
        found.note_outage(errors.ReplayTimeoutError("silent"))
        assert found.is_away
        assert found.is_there() and not found.is_away
        found.close()


def test_all_of_several_servers_are_found_and_actors_begin_with_different_ones():
    space = uuid.uuid4().hex
    for index in range(3):
        Replay(space, f"localhost:{index + 1}", index, servers=3)
    found = replay_connection.ReplayConnection(asking(space))
    assert found.address == "localhost:1,localhost:2,localhost:3"
    assert found.address.addresses == ("localhost:1", "localhost:2", "localhost:3")
    assert [c.server_address for c in found.clients] == list(found.address.addresses)
    found.close()
    found = replay_connection.ReplayConnection(asking(space, index=4))
    assert [c.server_address[-1] for c in found.clients] == ["2", "3", "1"]
    found.close()


def test_servers_that_count_themselves_differently_are_refused():
    space = uuid.uuid4().hex
    Replay(space, servers=2)
    Replay(space, index=1, servers=3)
    with pytest.raises(errors.ConfigError, match="replay-1 is one of 3 .*, replay-0 one of 2: "):
        replay_connection.ReplayConnection(asking(space))


def test_servers_of_different_configurations_are_refused():
    space = uuid.uuid4().hex
    Replay(space, servers=2)
    Replay(space, index=1, servers=2, run_id="theirs")
    with pytest.raises(errors.SpecMismatchError, match='run id: "theirs" here, "ours" in the run'):
        replay_connection.ReplayConnection(asking(space))


def test_a_further_server_has_the_run_id_of_the_first():
    space = uuid.uuid4().hex
    Replay(space, servers=2)
    further = jobs_in_process.make_job("replay", space, 1, source=None)
    assert replay_connection.ask_run_id(further) == "ours"


def test_one_of_several_servers_that_is_away_is_noticed():
    space = uuid.uuid4().hex
    one, other = (server.ReplayServer([tables.uniform_table("t", 10)]) for _ in range(2))
    for index, serving in enumerate((one, other)):
        Replay(space, serving.address, index, servers=2)
    found = replay_connection.ReplayConnection(asking(space))
    one.client().insert(1.0, {"t": 1.0})
    other.client().insert(1.0, {"t": 1.0})
    assert found.table_state("t", 10.0).size == 2
    other.stop()
    with pytest.raises(errors.ReplayTimeoutError, match=other.address):
        found.table_state("t", 1.0)
    with pytest.raises(errors.ReplayTimeoutError, match=other.address):
        found.require_answer(1.0)
    found.close()
    one.stop()
