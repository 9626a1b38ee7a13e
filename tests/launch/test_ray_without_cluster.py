"""What driver and supervisor of a Ray run do when something fails, with a stand-in for Ray."""

import types

import pytest
from ray import exceptions

from actor_learner import run_directory
from actor_learner.launch import ray_driver, ray_supervisor, run_jobs, shared_view
from actor_learner.support import errors


class Ray:
    """As much of Ray as is needed to start an actor, which does not answer."""

    def __init__(self, failure=None):
        self.exceptions = exceptions
        self.killed = []
        self._failure = failure

    def get_runtime_context(self):
        return types.SimpleNamespace(gcs_address="here:1", get_node_id=lambda: "0" * 56)

    def remote(self, cls):
        look = types.SimpleNamespace(remote=lambda seen: "answer")
        actor = types.SimpleNamespace(look=look)
        made = types.SimpleNamespace(remote=lambda plan: actor)
        return types.SimpleNamespace(options=lambda **_: made)

    def get(self, answer, timeout):
        raise self._failure

    def kill(self, actor, no_restart):
        self.killed.append((actor, no_restart))


def driver_of(ray):
    driver = object.__new__(ray_driver.RayRun)
    driver._ray, driver._run, driver._run_dir = ray, "mine", None
    return driver


def supervisor_of(ray, run_dir):
    supervisor = object.__new__(ray_supervisor.RaySupervisor)
    supervisor._ray, supervisor._own_handle = ray, "itself"
    supervisor._run_dir = run_directory.RunDirectory(run_dir)
    supervisor._view = shared_view.SharedView()
    return supervisor


@pytest.mark.parametrize(
    "failure, raised",
    [
        (exceptions.GetTimeoutError("too late"), errors.JobError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_supervisor_that_is_not_waited_for_is_not_left_behind(tmp_path, failure, raised):
    ray = Ray(failure)
    with pytest.raises(raised):
        driver_of(ray).begin(ray_supervisor.RunPlan("mine", str(tmp_path), [], "registry"))
    assert [no_restart for _, no_restart in ray.killed] == [True]


def test_a_supervisor_without_a_log_says_so_and_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_supervisor, "_LINGER_SECONDS", 0.0)
    (tmp_path / "jobs").write_text("in the way")
    ray = Ray()
    supervisor = supervisor_of(ray, tmp_path)
    supervisor._run(again=False)
    ending = supervisor.look(None).ending
    assert ending.code == run_jobs.FAILED
    assert "cannot begin" in ending.lines[0] and str(tmp_path / "jobs") in ending.lines[0]
    assert ray.killed == [("itself", True)]


def test_a_launcher_that_cannot_be_closed_is_logged(caplog):
    def close():
        raise RuntimeError("the cluster is lost")

    ray_supervisor._close(types.SimpleNamespace(close=close))
    assert "the cluster is lost" in caplog.text


def test_a_run_that_begins_here_is_not_shown_as_one_that_ended_on_a_cluster(tmp_path):
    (tmp_path / "ending.json").write_text('{"code": 0, "lines": ["completed"]}')
    (tmp_path / "ray.json").write_text('{"address": "there:1"}')
    ray_driver.forget(run_directory.RunDirectory(tmp_path))
    with pytest.raises(errors.ConfigError, match="was not begun on a Ray cluster"):
        ray_driver.attach(str(tmp_path), None, None)
