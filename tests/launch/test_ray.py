"""Jobs on a real Ray cluster of several nodes, all on the loopback address."""

import pathlib
import signal
import subprocess
import sys
import types

import pytest

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.launch import job_spec, ray, ray_job
from actor_learner.naming import files
from actor_learner.support import errors
from tests.launch import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 120.0
# Ray's own way to use the loopback address only; its name tells where Ray does so by itself.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@pytest.fixture(scope="module")
def cluster():
    """A head that runs no jobs; tests add nodes."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOOPBACK, "PYTHONPATH": str(ROOT)}.items():
            patch.setenv(name, value)
        from ray import cluster_utils

        made = cluster_utils.Cluster()
        add_node(made, 0)
        yield made
        made.shutdown()


def add_node(cluster, cpus, **resources):
    """Adds a node, trying again where a busy machine takes longer than Ray itself waits."""
    for attempts_left in (2, 1, 0):
        try:
            return cluster.add_node(
                num_cpus=cpus,
                node_ip_address="127.0.0.1",
                include_dashboard=False,
                resources=resources,
            )
        except Exception as error:  # Ray raises no type of its own.
            if "timed out during startup" not in str(error) or not attempts_left:
                raise


def launch(cluster, run, *descriptions, cpus=1):
    run.mkdir()
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.launch.toy_ray_up"),
            *(cluster.address, str(cpus), str(run), *descriptions),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_jobs_survive_their_node_and_the_run_completes(cluster, tmp_path):
    run = tmp_path / "run"
    doomed = add_node(cluster, 2)
    launcher = launch(
        cluster, run, "actor-0 --grandchildren=1 --expect=/only/at/home/toys.gin", "learner-0"
    )
    try:
        watching = controller.Controller(files.FileRegistry(run / "registry"), "run")
        both = ["actor-0", "learner-0"]
        before = watching.wait_for(states.RUNNING, both, timeout=DEADLINE)
        (orphan,) = processes.lines_of(run / "actor-0.grandchildren", 1)
        add_node(cluster, 2)
        cluster.remove_node(doomed, allow_graceful=False)
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
    assert launcher.returncode == 0, said
    assert (run / "order").read_text().split()[-2:] == ["learner-0", "actor-0"]
    assert "training is complete" in said and "restarts 1" in said
    # What the jobs printed on their nodes has come here, from both of their lives.
    log = (run / "jobs" / "actor-0" / "log").read_text()
    assert log.count("start of actor-0") == 2 and "actor-0: completed" in log
    assert processes.with_word(str(run)) == []


TRAINING = (
    "Experiment.environment_steps = 15_000",
    "Evaluation.target_return = None",
    "Experiment.initial_random_steps = 200",
    "Experiment.updates_per_step = 1.0",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 1",
    "dqn.fc_layer_params = (16,)",
    "Jobs.resources = {'replay': {'home': 1}, 'learner': {'home': 1}, 'actor': {'acting': 1}}",
)


@pytest.mark.timeout(400)
def test_a_real_training_is_completed_though_the_node_of_its_actor_dies(cluster, tmp_path):
    registry, run = tmp_path / "registry", tmp_path / "real"
    nodes = [add_node(cluster, 0, home=2), add_node(cluster, 0, acting=1)]
    command = [
        *(sys.executable, "-m", "actor_learner.cli", "up", "--gin_file=dqn_cartpole"),
        *(f"--gin_param={binding}" for binding in TRAINING),
        *("--launcher=ray", f"--address={cluster.address}", f"--registry={registry}"),
        *(f"--run_dir={run}", "--evaluators=0", "--seed=2"),
    ]
    output = tmp_path / "said"
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
        steps = watching.worker("learner").details["environment_steps"]
        assert launcher.wait(2 * DEADLINE) == 0, output.read_text()
        after = watching.worker("actor")
        learner = watching.worker("learner")
    finally:
        launcher.kill()
        launcher.wait(DEADLINE)
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    assert address.startswith("127.0.0.1:")  # That of its node, which Ray knows.
    assert "--host=127.0.0.1" in (run / "jobs" / "replay-0" / "log").read_text()
    assert after.incarnation != before.incarnation and after.steps > 0
    assert steps < 15_000 <= learner.details["environment_steps"]
    assert (run / "policies" / "greedy_policy" / "saved_model.pb").exists()
    assert "training is complete" in output.read_text()


def test_when_the_launcher_is_killed_its_jobs_on_the_cluster_end(cluster, tmp_path):
    run = tmp_path / "orphaned"
    launcher = launch(cluster, run, "actor-0 --grandchildren=1")
    try:
        pids = processes.lines_of(run / "actor-0.pids", 1)
        pids += processes.lines_of(run / "actor-0.grandchildren", 1)
    finally:
        launcher.kill()
        launcher.communicate(timeout=DEADLINE)
    processes.wait_until_gone([int(pid) for pid in pids])


def test_jobs_that_no_node_has_room_for_are_given_up_on_ctrl_c(cluster, tmp_path):
    launcher = launch(cluster, tmp_path / "waiting", "actor-0", cpus=1_000)
    said = []
    try:
        for line in launcher.stderr:
            said.append(line)
            if "actor-0 starting" in line:
                launcher.send_signal(signal.SIGINT)
                break
        said += launcher.communicate(timeout=DEADLINE)[1]
    finally:
        launcher.kill()
        launcher.wait(DEADLINE)
    assert launcher.returncode == 130, "".join(said)


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
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(util=util))
    seen = []
    monkeypatch.setattr(ray_job.local, "start", lambda spec, *_, **__: seen.append(spec))
    spec = job_spec.JobSpec("replay", 0, ["job", *given])
    ray_job.RayJob(spec, 0, files={}, files_from="", program="").clean_up()
    assert seen[0].command == ["job", started]


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.MissingExtraError, match=r"actor-learner\[ray\]"):
        ray.RayLauncher("auto", namespace="run")
