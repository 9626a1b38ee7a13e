"""Whoever does not fit the run is told why, before it writes anything."""

import os

import gin
import pytest
import reverb

import actor_learner
from actor_learner import run_directory
from actor_learner.jobs import contract, job, main, names, replay_connection
from actor_learner.naming import connect, memory
from actor_learner.replay.server import server
from actor_learner.support import errors, reverb_calls
from tests.jobs import job_processes

pytestmark = pytest.mark.timeout(600)


class Run:
    """A replay server in a process of its own, waiting for actors."""

    def __init__(self, directory):
        self.machine = job_processes.Machine(directory / "machine")
        self.path = self.machine.directory / "mine"
        self.path.mkdir()
        self.process = self.machine.start("replay", "--gin_file=dqn_cartpole", f"--run={self.path}")
        self.watch = job_processes.Watch(str(self.path / "registry"), "mine")
        self.watch.wait(self._serves, "the replay serves", [self.process])

    def _serves(self):
        return names.address("mine", "replay", 0) in self.watch.names.find_subtree("mine")

    def items(self):
        """How many items actors have ever written."""
        client = reverb.Client(self.watch.names.get(names.address("mine", "replay", 0)))
        table = reverb_calls.fetch_table(client, "experience", 30.0)
        return table.rate_limiter_info.insert_stats.completed

    def close(self):
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
        assert "does not fit the run at localhost:" in said
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
    address = run.watch.names.get(names.address("mine", "replay", 0))
    other = (f"--registry={tmp_path / 'registry'}", f"--replay={address}")
    with run_directory.RunDirectory(run.path).locked():  # As the first learner does.
        said = learner_refused(run, capfd, *other)
    assert f"{run.path} is being trained by process {os.getpid()}" in said


def test_an_actor_with_other_lanes_is_refused(refused):
    said = refused("--gin_param=GymnasiumEnvironment.num_envs = 8")
    assert "lanes per actor: 8 here, 16 in the run" in said


def test_a_job_that_counts_the_actors_differently_is_refused(refused):
    said = refused("--num_actors=3", "--index=2")
    assert "num_actors: 3 here, 1 in the run" in said


def test_an_actor_of_another_version_is_refused(refused, monkeypatch):
    monkeypatch.setattr(actor_learner, "__version__", "99.0")
    assert 'package version: "99.0" here, "' in refused()


def a_job(space, run_id=None):
    registry = memory.MemoryRegistry(space)
    if run_id is not None:
        registry.add(f"mine/{replay_connection.RUN_ID}", run_id)
    return job.Job("actor", 0, "mine", registry)


@pytest.fixture
def others_server():
    with server.ReplayServer([contract.contract_table()]) as replay:
        contract.write(replay.client(), {"run id": "theirs", "lanes per actor": 3})
        yield replay


def test_a_server_of_another_run_on_a_port_that_ours_had_is_refused(others_server):
    asking = a_job("reused port", run_id="ours")
    asking.names.add(names.address("mine", "replay", 0), others_server.address)
    with pytest.raises(errors.ReplayError, match=r"belongs to another run \(theirs\).*\(ours\)"):
        replay_connection.Partner(asking, timeout_seconds=0.5)


def test_a_server_is_waited_for_until_it_is_the_right_one(others_server):
    asking = a_job("restarted", run_id="ours")
    asking.names.add(names.address("mine", "replay", 0), others_server.address)
    with server.ReplayServer([contract.contract_table()]) as ours:
        contract.write(ours.client(), {"run id": "ours", "lanes per actor": 5})

        class Registry:
            """Has the address of the old server until somebody has looked at it."""

            def __init__(self, registry):
                self._registry = registry

            def wait(self, name, timeout):
                address = self._registry.wait(name, timeout)
                self._registry.add(name, ours.address, replace=True)
                return address

            def get(self, name):
                return self._registry.get(name)

        asking.names = Registry(asking.names)
        found = replay_connection.Partner(asking, timeout_seconds=60.0)
    assert (found.run_id, found.num_lanes) == ("ours", 5)


def test_an_address_may_come_from_the_environment(others_server, monkeypatch):
    monkeypatch.setenv(replay_connection.ADDRESS_VARIABLE, others_server.address)
    assert replay_connection.Partner(a_job("no address")).run_id == "theirs"


def test_a_server_that_never_comes_is_not_waited_for_without_end():
    with pytest.raises(errors.JobTimeoutError, match="has waited .* for replay-0"):
        replay_connection.Partner(a_job("nobody"), timeout_seconds=0.2)


def ours_and_moved(monkeypatch):
    monkeypatch.setattr(replay_connection, "_ASK_SECONDS", 0.0)
    return server.ReplayServer([contract.contract_table()])


def test_a_server_that_is_elsewhere_by_now_is_told_from_one_that_is_only_silent(monkeypatch):
    asking = a_job("moved")
    with ours_and_moved(monkeypatch) as ours:
        contract.write(ours.client(), {"run id": "ours", "lanes per actor": 5})
        asking.names.add(names.address("mine", "replay", 0), ours.address)
        found = replay_connection.Partner(asking, timeout_seconds=30.0)
        given = replay_connection.Partner(asking, ours.address, timeout_seconds=30.0)
    found.require_same_address()  # Nobody says that it is elsewhere.
    asking.names.delete(names.address("mine", "replay", 0))
    found.require_same_address()
    asking.names.add(names.address("mine", "replay", 0), "10.0.0.7:8008")
    with pytest.raises(errors.ReplayMovedError, match="it is at 10.0.0.7:8008 now: start this job"):
        found.require_same_address()
    given.require_same_address()  # Whoever gave the address knows best.


def test_a_server_that_comes_back_as_another_runs_is_told_apart(others_server):
    found = replay_connection.Partner(a_job("whose"), others_server.address)
    found.require_same_run()
    contract.write(others_server.client(), {"run id": "somebody's", "lanes per actor": 3})
    with pytest.raises(errors.OtherRunError, match=r"another run \(somebody's, not theirs\)"):
        found.require_same_run()
