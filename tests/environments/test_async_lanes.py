import multiprocessing
import os
import signal

import gin
import numpy as np
import pytest

from actor_learner.environments import async_lanes
from actor_learner.environments.gymnasium import GymnasiumEnvironment
from actor_learner.support import errors
from tests import counting_environment
from tests.environments import sample_environments


def _zeros(num_lanes):
    return np.zeros(num_lanes, np.int64)


def _is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _assert_leaves_no_process(env):
    processes = env.vector_env.processes
    pids = [process.pid for process in processes]
    env.close()
    assert all(_is_gone(pid) for pid in pids)
    assert not {child.pid for child in multiprocessing.active_children()} & set(pids)


def test_a_killed_lane_is_named_with_its_signal_and_close_leaves_no_process():
    env = GymnasiumEnvironment("CountingEnv-v0", 2, vectorization="async")
    env.reset()
    victim = env.vector_env.processes[1]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()

    with pytest.raises(errors.EnvironmentError) as caught:
        env.step(_zeros(2))

    message = str(caught.value)
    assert "'CountingEnv-v0'" in message
    assert f"lane 1 (process {victim.pid}) was killed by SIGKILL" in message
    assert "lane 0" not in message
    with pytest.raises(errors.EnvironmentError, match="failed before"):
        env.step(_zeros(2))
    _assert_leaves_no_process(env)


def test_a_hanging_lane_is_named_within_the_timeout_and_close_leaves_no_process():
    env = GymnasiumEnvironment(
        sample_environments.HangingEnv, 2, vectorization="async", step_timeout_seconds=5.0
    )
    env.reset()

    with pytest.raises(errors.EnvironmentError, match="HangingEnv.*within 5 s.*lane 1 ") as caught:
        env.step(np.array([0, 1]))

    assert "lane 0" not in str(caught.value)
    _assert_leaves_no_process(env)


def test_an_exception_in_a_lane_comes_with_its_traceback():
    env = GymnasiumEnvironment(sample_environments.RaisingEnv, 2, vectorization="async")
    env.reset()

    with pytest.raises(errors.EnvironmentError) as caught:
        env.step(np.array([0, 1]))

    message = str(caught.value)
    assert "RaisingEnv" in message
    assert "lane(s) 1" in message
    assert "ZeroDivisionError: the planted mistake" in message
    assert "sample_environments.py" in message
    _assert_leaves_no_process(env)


def test_a_lane_that_cannot_make_its_environment_is_an_error_and_no_process_stays():
    with pytest.raises(errors.EnvironmentError, match="no such level file"):
        GymnasiumEnvironment(
            sample_environments.UnconstructibleEnv,
            2,
            vectorization="async",
            make_kwargs={"main_process": os.getpid()},
        )

    assert not [p for p in multiprocessing.active_children() if p.name.startswith("lane-")]


def test_lanes_do_not_import_tensorflow():
    with GymnasiumEnvironment(sample_environments.ModulesEnv, 1, vectorization="async") as env:
        env.reset()
        assert env.get_info()["tensorflow"].tolist() == [False]


def test_what_cannot_be_sent_to_a_process_is_refused_with_a_way_out():
    @gin.configurable
    def make_counting_environment():
        return counting_environment.CountingEnv()

    with pytest.raises(errors.ConfigError, match="cannot be sent.*vectorization='sync'"):
        GymnasiumEnvironment(make_counting_environment, 2, vectorization="async")


def test_closing_healthy_lanes_leaves_no_process():
    env = GymnasiumEnvironment("CountingEnv-v0", 2, vectorization="async")
    env.reset()
    env.step(_zeros(2))

    _assert_leaves_no_process(env)


def test_after_an_interrupted_step_answers_are_not_mixed_up(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    env = GymnasiumEnvironment("CountingEnv-v0", 2, vectorization="async")
    env.reset()
    with monkeypatch.context() as patch:
        patch.setattr(async_lanes.connection, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.step(_zeros(2))

    with pytest.raises(errors.EnvironmentError, match="step was interrupted"):
        env.step(_zeros(2))
    _assert_leaves_no_process(env)
