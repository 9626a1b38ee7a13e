"""Jobs on a real Ray cluster of several nodes, all on the loopback address."""

import pathlib
import re
import subprocess
import sys
import types

import pytest

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.launch import job_spec, ray_cluster, ray_job
from actor_learner.naming import files
from actor_learner.support import errors
from tests.launch import processes, toy_cluster
from tests.launch.toy_cluster import ROOT, add_node, attach, launch

DEADLINE = 240.0


@pytest.fixture(scope="module")
def cluster():
    with toy_cluster.running() as made:
        yield made


@pytest.mark.timeout(900)
def test_jobs_survive_their_node_and_the_run_completes(cluster, tmp_path):
    run = tmp_path / "run"
    nodes = [add_node(cluster, 2)]
    launcher = launch(
        cluster, run, "actor-0 --grandchildren=1 --expect=/only/at/home/toys.gin", "learner-0"
    )
    try:
        watching = controller.Controller(files.FileRegistry(run / "registry"), "run")
        both = ["actor-0", "learner-0"]
        before = watching.wait_for(states.RUNNING, both, timeout=DEADLINE)
        (orphan,) = processes.lines_of(run / "actor-0.grandchildren", 1)
        nodes.append(add_node(cluster, 2))
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
        for job in both:
            processes.lines_of(run / f"{job}.pids", 2)
        after = watching.wait_for(states.RUNNING, both, timeout=DEADLINE)
        processes.wait_until_gone([int(orphan), *(status.pid for status in before.values())])
        for job in both:
            assert after[job].incarnation != before[job].incarnation
        (run / "learner-0.finish").touch()
        _, said = launcher.communicate(timeout=DEADLINE)
    finally:
        launcher.kill()
        launcher.wait(DEADLINE)
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    assert launcher.returncode == 0, said
    assert (run / "order").read_text().split()[-2:] == ["learner-0", "actor-0"]
    assert "training is complete" in said
    # What the jobs printed on their nodes has come here, from both of their lives.
    log = (run / "jobs" / "actor-0" / "log").read_text()
    lives = re.findall(r"--- (start|restart \d+) of actor-0", log)
    assert lives[0] == "start" and len(lives) >= 2, lives
    # All nodes have one address, so that Ray may have put the supervisor on the one that is lost.
    lost = "the supervisor was lost" in (run / "jobs" / "up-0" / "log").read_text()
    assert lost or "--- Ray has lost actor-0" in log
    assert "actor-0: completed" in log
    processes.wait_until(lambda: processes.with_word(str(run)) == [], "all jobs have ended")


TURN = 256  # Environment steps: Experiment.collect_steps of dqn_cartpole.
TRAINING = (
    "Experiment.environment_steps = 15_000",
    "Evaluation.target_return = None",
    "Experiment.initial_random_steps = 200",
    "Experiment.updates_per_step = 1.0",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 1",
    "dqn.fc_layer_params = (16,)",
    "Ray.resources = {'replay': {'num_cpus': 0, 'resources': {'home': 1}}, "
    "'learner': {'num_cpus': 0, 'resources': {'home': 1}}, "
    "'actor': {'num_cpus': 0, 'resources': {'acting': 1}}}",
)


@pytest.mark.timeout(900)
def test_a_real_training_survives_its_driver_and_the_node_of_its_actor(cluster, tmp_path):
    registry, run = tmp_path / "registry", tmp_path / "real"
    nodes = [add_node(cluster, 0, home=2), add_node(cluster, 0, acting=1)]
    command = [
        *(sys.executable, "-m", "actor_learner.cli", "up", "--gin_file=dqn_cartpole"),
        *(f"--gin_param={binding}" for binding in TRAINING),
        *("--launcher=ray", f"--address={cluster.address}", f"--registry={registry}"),
        *(f"--run_dir={run}", "--evaluators=0", "--seed=2"),
    ]
    output = tmp_path / "said"
    viewer = None
    with open(output, "w") as file:
        launcher = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    try:
        names = files.FileRegistry(registry)
        # A cluster is more than one machine: its jobs have keys.
        processes.wait_until((run / "keys.json").exists, "the keys are made")
        keys = rendezvous.keys_of(run_directory.RunDirectory(run))
        watching = controller.Controller(names, "real", keys=keys)
        everybody = ["replay-0", "learner-0", "actor-0"]
        before = watching.wait_for(states.RUNNING, everybody, timeout=DEADLINE)["actor-0"]
        address = names.get("real/jobs/replay/0/address")
        processes.wait_until(lambda: watching.worker("learner").steps, "it trains")
        # A node takes longer to come up than the training would.
        watching.send(states.PAUSE, kind="learner", timeout=DEADLINE)
        nodes.append(add_node(cluster, 0, acting=1))
        watching.send(states.RESUME, kind="learner", timeout=DEADLINE)
        cluster.remove_node(nodes.pop(1), allow_graceful=False)
        processes.wait_until_gone([before.pid])
        # The run is the cluster's: it does not end with the command that has begun it.
        launcher.kill()
        launcher.wait(DEADLINE)
        steps = watching.worker("learner").details["environment_steps"]
        viewer = attach(run)
        seen = viewer.communicate(timeout=2 * DEADLINE)[1]
        assert viewer.returncode == 0, seen
        after = watching.worker("actor")
        learner = watching.worker("learner")
    finally:
        launcher.kill()
        launcher.wait(DEADLINE)
        if viewer is not None:
            viewer.kill()
            viewer.wait(DEADLINE)
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    assert address.startswith("127.0.0.1:")  # That of its node, which Ray knows.
    assert "--host=127.0.0.1" in (run / "jobs" / "replay-0" / "log").read_text()
    assert after.incarnation != before.incarnation and after.steps > 0
    assert steps < 15_000 <= learner.details["environment_steps"] < 15_000 + TURN
    assert (run / "policies" / "greedy_policy" / "saved_model.pb").exists()
    assert "training is complete" in seen and f"completed: {run}" in seen


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_training_survives_its_supervisor(cluster, tmp_path):
    registry, run = tmp_path / "registry", tmp_path / "supervised"
    nodes = [add_node(cluster, 0, home=2, acting=1)]
    command = [
        *(sys.executable, "-m", "actor_learner.cli", "up", "--gin_file=dqn_cartpole"),
        *(f"--gin_param={binding}" for binding in TRAINING),
        "--gin_param=Learner.checkpoint_interval = 500",
        *("--launcher=ray", f"--address={cluster.address}", f"--registry={registry}"),
        *(f"--run_dir={run}", "--evaluators=0", "--seed=2", "--detach"),
    ]
    viewer = None
    try:
        subprocess.run(command, cwd=ROOT, check=True, timeout=DEADLINE)
        keys = rendezvous.keys_of(run_directory.RunDirectory(run))
        watching = controller.Controller(files.FileRegistry(registry), "supervised", keys=keys)
        saved = run / "train" / "checkpoints"
        processes.wait_until(lambda: list(saved.glob("ckpt-*.index")), "it has saved")
        before = watching.worker("learner")
        viewer = attach(run)
        toy_cluster.supervisor_of(run).kill()
        seen = viewer.communicate(timeout=3 * DEADLINE)[1]
        after = watching.worker("learner")
    finally:
        if viewer is not None:
            viewer.kill()
            viewer.wait(DEADLINE)
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    assert viewer.returncode == 0, seen
    assert "the supervisor was lost with its process or node" in seen
    assert after.incarnation != before.incarnation
    # The last turn of the actor is completed; of what its killed predecessor did, all counts.
    assert 15_000 <= after.details["environment_steps"] < 15_000 + TURN


def test_commands_name_this_nodes_python_and_the_copies_of_files(tmp_path):
    command = ["/home/python", "-m", "job", "--gin_file=/home/run/config.gin", "--run=/home/run"]
    found = ray_job.command_here(
        command, {"config.gin": ""}, "/home/run", pathlib.Path("/node"), "/home/python"
    )
    assert found == [
        sys.executable, "-m", "job", "--gin_file=/node/config.gin", "--run=/home/run"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given, started", [([], "--host=10.0.0.9"), (["--host=alpha"], "--host=alpha")]
)
def test_a_server_is_reached_by_the_address_of_its_node_unless_another_is_given(
    monkeypatch, given, started
):
    util = types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.9")
    context = types.SimpleNamespace(get_assigned_resources=lambda: {"CPU": 1.0})
    module = types.SimpleNamespace(util=util, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", module)
    seen = []
    monkeypatch.setattr(ray_job.local, "start", lambda spec, *_, **__: seen.append(spec))
    spec = job_spec.JobSpec("replay", 0, ["job", *given])
    ray_job.RayJob(spec, 0, files={}, files_from="", program="").clean_up()
    assert seen[0].command == ["job", started]


def test_modules_of_a_runtime_env_are_found_behind_those_of_the_launcher():
    given = {"PYTHONPATH": "/ours", "A": "1"}
    assert ray_job.environment_here(given, {"PYTHONPATH": "/shipped", "B": "2"}) == {
        "PYTHONPATH": "/ours:/shipped", "A": "1"
    }  # fmt: skip


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.MissingExtraError, match=r"\.\[ray\]"):
        ray_cluster.connect("auto", namespace="run")


@pytest.mark.parametrize(
    "address, words",
    [
        ("127.0.0.1:9", "no Ray cluster at --address=127.0.0.1:9: .*refused.*ray start --head"),
        ("ray://head:10001", "Ray's client .* is not supported"),
        ("head", "must be 'auto', .* or HOST:PORT"),
    ],
)
def test_a_cluster_that_is_missing_is_named(monkeypatch, address, words):
    pytest.importorskip("ray")
    with pytest.raises(errors.ConfigError, match=words):
        ray_cluster.connect(address, namespace="run")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(errors.ConfigError, match=words):
        ray_cluster.connect("auto", namespace="run")


def test_a_machine_that_belongs_to_no_cluster_or_to_one_that_has_ended_is_told_so(monkeypatch):
    pytest.importorskip("ray")
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    resolve = "canonicalize_bootstrap_address_or_die"

    def nothing(address):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(services, resolve, nothing)
    with pytest.raises(errors.ConfigError, match="--address=auto: Could not find any running"):
        ray_cluster.connect("auto", namespace="run")
    # Ray itself would try for minutes.
    monkeypatch.setattr(services, resolve, lambda address: "127.0.0.1:9")
    with pytest.raises(errors.ConfigError, match="no Ray cluster at --address=127.0.0.1:9"):
        ray_cluster.connect("auto", namespace="run")


@pytest.mark.parametrize(
    "runtime_env, words",
    [
        ({"env_var": {}}, "unknown field 'env_var': did you mean 'env_vars'"),
        ({"env_vars": {"A": 1}}, "Ray.runtime_env is refused by Ray"),
    ],
)
def test_a_wrong_runtime_env_is_refused(runtime_env, words):
    pytest.importorskip("ray")
    with pytest.raises(errors.ConfigError, match=words):
        ray_cluster.connect("auto", namespace="run", runtime_env=runtime_env)
