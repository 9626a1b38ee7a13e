"""A run on a Ray cluster belongs to the cluster: whoever started it may leave, and come back."""

import os
import re
import signal

import pytest

from actor_learner.jobs import controller, states
from actor_learner.naming import files
from tests.launch import processes, toy_cluster
from tests.launch.toy_cluster import add_node, attach, launch

DEADLINE = processes.DEADLINE


@pytest.fixture(scope="module")
def cluster():
    with toy_cluster.running() as made:
        add_node(made, 2, gpus=1, memory=10**9, toys=4)
        yield made


@pytest.fixture
def kill():
    """Processes to be killed at the end of a test, whatever has become of them."""
    started = []
    yield started.append
    for process in started:
        process.kill()
        process.communicate(timeout=DEADLINE)


def controller_of(run):
    return controller.Controller(files.FileRegistry(run / "registry"), run.name)


def said_until(process, words):
    """What a process says up to a line with `words`."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"{words!r} was not said in:\n" + "".join(lines))


def test_a_run_outlives_whoever_started_it_and_is_seen_again(cluster, tmp_path, kill):
    run = tmp_path / "outlives"
    launcher = launch(cluster, run, "actor-0", "learner-0")
    kill(launcher)
    both = ["actor-0", "learner-0"]
    before = controller_of(run).wait_for(states.RUNNING, both, timeout=DEADLINE)
    launcher.kill()
    launcher.communicate(timeout=DEADLINE)
    second = launch(cluster, run, "actor-0", "learner-0")
    kill(second)
    _, refusal = second.communicate(timeout=DEADLINE)
    assert second.returncode == 1
    assert f"is under way on this cluster, in {run}" in refusal
    assert f"up --attach={run}" in refusal
    # Whoever only looks does not end it.
    viewer = attach(run)
    kill(viewer)
    said_until(viewer, "actor-0 running")
    viewer.send_signal(signal.SIGINT)
    _, goodbye = viewer.communicate(timeout=DEADLINE)
    assert viewer.returncode == 130 and "SIGINT: the run goes on" in goodbye
    viewer = attach(run)
    kill(viewer)
    seen = said_until(viewer, "learner-0 running")
    after = controller_of(run).wait_for(states.RUNNING, both, timeout=DEADLINE)
    assert [after[job].pid for job in both] == [before[job].pid for job in both]
    (run / "learner-0.finish").touch()
    seen += viewer.communicate(timeout=DEADLINE)[1]
    assert viewer.returncode == 0, seen
    assert "training is complete" in seen and seen.endswith(f"\ncompleted: {run}\n")
    # And afterwards, from what it has left.
    viewer = attach(run)
    kill(viewer)
    assert viewer.communicate(timeout=DEADLINE)[1] == f"completed: {run}\n"
    assert viewer.returncode == 0
    processes.wait_until(lambda: processes.with_word(str(run)) == [], "all jobs have ended")


def test_a_run_is_left_to_the_cluster_scaled_there_and_ended_by_a_controller(
    cluster, tmp_path, kill
):
    run = tmp_path / "left"
    # With one toy each, so that there is room for a third.
    launcher = launch(
        cluster, run, "actor-0 --tell=COLOUR", "learner-0", detach=True,
        resources={"CPU": 0.5, "GPU": 0.25, "memory": 10**8, "toys": 1},
        runtime_env={"env_vars": {"COLOUR": "green"}},
    )  # fmt: skip
    kill(launcher)
    _, said = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 0 and f"up --attach={run}" in said
    watching = controller_of(run)
    watching.wait_for(states.RUNNING, ["actor-0", "learner-0"], timeout=DEADLINE)
    assert processes.lines_of(run / "actor-0.told", 1) == ["green"]
    log = run / "jobs" / "actor-0" / "log"
    asked = "with 0.5 CPU, 0.25 GPU, 0.1 GB of memory, 1 'toys'"
    processes.wait_until(lambda: asked in log.read_text(), "Ray has given what was asked for")
    from actor_learner import cli

    assert cli.main(["scale", str(run), "--actors=2"]) == 0
    watching.wait_for(states.RUNNING, ["actor-1"], timeout=DEADLINE)
    viewer = attach(run)
    kill(viewer)
    said_until(viewer, "actor-1 running")
    watching.send(states.EXIT, kind="learner", timeout=DEADLINE)
    _, seen = viewer.communicate(timeout=DEADLINE)
    assert viewer.returncode == 3 and seen.endswith(f"\nstopped: {run}\n"), seen


def test_ctrl_c_ends_the_run_in_order_and_a_second_one_at_once(cluster, tmp_path, kill):
    run = tmp_path / "interrupted"
    launcher = launch(cluster, run, "actor-0 --slow_to_save", "learner-0")
    kill(launcher)
    controller_of(run).wait_for(states.RUNNING, ["actor-0", "learner-0"], timeout=DEADLINE)
    said_until(launcher, "learner-0 running")
    launcher.send_signal(signal.SIGINT)
    pids = processes.lines_of(run / "actor-0.saving", 1)
    launcher.send_signal(signal.SIGINT)
    _, said = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 130, said
    processes.wait_until_gone([int(pid) for pid in pids])
    viewer = attach(run)
    kill(viewer)
    assert viewer.communicate(timeout=DEADLINE)[1] == f"ended at once, unsaved: {run}\n"
    assert viewer.returncode == 130


def test_a_request_that_the_cluster_cannot_meet_is_explained_and_given_up(cluster, tmp_path, kill):
    run = tmp_path / "large"
    launcher = launch(
        cluster, run, "actor-0", "learner-0",
        resources={"CPU": 1, "GPU": 2, "memory": 4 * 10**9}, wait_seconds=12.0,
    )  # fmt: skip
    kill(launcher)
    _, said = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 1, said
    assert (
        "the run waits for room on the cluster for all its 2 jobs at once (Ray.placement = 'PACK')."
        " They ask for 2 CPU, 4 GPU, 8 GB of memory in all, one of them for 1 CPU, 2 GPU, 4 GB of "
        "memory on its node. "
    ) in said
    assert re.search(r"After \d+ s, the cluster has 2 nodes with 2 CPU, 1 GPU, ", said), said
    # Whichever gives up first.
    assert "no node had room for" in said and "within 12 s (Ray.wait_seconds)" in said


def test_without_a_group_each_job_waits_for_itself_until_ctrl_c(cluster, tmp_path, kill):
    run = tmp_path / "alone"
    launcher = launch(cluster, run, "actor-0", resources={"CPU": 1_000}, placement=None)
    kill(launcher)
    line = said_until(launcher, "actor-0 waits for a node. It asks for 1000 CPU. After ")
    assert re.search(r"After \d+ s, the cluster has", line), line
    launcher.send_signal(signal.SIGINT)
    _, said = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 130, said


def test_a_supervisor_and_a_job_that_are_killed_come_back(cluster, tmp_path, kill):
    run = tmp_path / "killed"
    launcher = launch(cluster, run, "actor-0", "learner-0")
    kill(launcher)
    both = ["actor-0", "learner-0"]
    watching = controller_of(run)
    before = watching.wait_for(states.RUNNING, both, timeout=DEADLINE)
    # The control service of the cluster is away for a while: nothing ends for that.
    (service,) = [p.process.pid for p in cluster.head_node.all_processes["gcs_server"]]
    os.kill(service, signal.SIGSTOP)
    try:
        os.kill(before["actor-0"].pid, signal.SIGKILL)
        said = said_until(launcher, "actor-0 ended with signal SIGKILL")
    finally:
        os.kill(service, signal.SIGCONT)
    processes.lines_of(run / "actor-0.pids", 2)
    after = watching.wait_for(states.RUNNING, both, timeout=DEADLINE)
    assert after["learner-0"].pid == before["learner-0"].pid
    toy_cluster.supervisor_of(run).kill()
    said += said_until(launcher, "the supervisor was lost with its process or node")
    processes.lines_of(run / "learner-0.pids", 2)
    processes.wait_until_gone([after[job].pid for job in both])
    watching.wait_for(states.RUNNING, both, timeout=DEADLINE)
    (run / "learner-0.finish").touch()
    said += launcher.communicate(timeout=DEADLINE)[1]
    assert launcher.returncode == 0, said
