"""MuJoCo and PyBullet environments by TF-Agents' functions."""

import importlib.util
import inspect
import sys

import numpy as np
import pytest
from tf_agents.environments import suite_gym
from tf_agents.environments import suite_mujoco as theirs

from actor_learner.environments import suite_mujoco, suite_pybullet
from actor_learner.support import errors


def test_arguments_are_those_of_suite_mujoco():
    ours = inspect.signature(suite_mujoco.load).parameters.values()
    reference = inspect.signature(theirs.load).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in reference]


def test_an_environment_has_float32_and_its_registered_time_limit():
    assert suite_mujoco.is_available()
    env = suite_mujoco.load("HalfCheetah-v5", max_episode_steps=2)
    assert env.observation_spec().dtype == env.action_spec().dtype == np.float32
    action = np.zeros(env.action_spec().shape, np.float32)
    time_steps = [env.reset(), *(env.step(action) for _ in range(3))]
    assert [int(time_step.step_type) for time_step in time_steps] == [0, 1, 2, 0]
    assert time_steps[1].observation.dtype == np.float32
    assert float(time_steps[2].discount) == 1.0
    env.close()
    assert suite_mujoco.load("HalfCheetah-v5").duration == 1000


def test_versions_of_mujoco_py_are_refused_with_what_there_is():
    with pytest.raises(errors.ConfigError, match="use HalfCheetah-v4 or HalfCheetah-v5"):
        suite_mujoco.load("HalfCheetah-v2")


def test_without_mujoco_the_error_names_the_extra(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mujoco" else found(name)
    )
    assert not suite_mujoco.is_available()
    with pytest.raises(errors.MissingExtraError, match=r"\.\[mujoco\]"):
        suite_mujoco.load("HalfCheetah-v5")


def test_pybullets_arguments_are_those_of_suite_gym():
    ours = inspect.signature(suite_pybullet.load).parameters.values()
    reference = inspect.signature(suite_gym.load).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in reference]


def test_without_pybullets_environments_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(errors.MissingExtraError, match="pip install pybullet_envs_gymnasium"):
        suite_pybullet.load("HalfCheetahBulletEnv-v0")


def test_the_package_registers_the_environments(tmp_path, monkeypatch):
    (tmp_path / "pybullet_envs_gymnasium.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('PendulumBulletEnv-v0', "
        "'gymnasium.envs.classic_control:PendulumEnv', max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pybullet_envs_gymnasium", raising=False)
    env = suite_pybullet.load("PendulumBulletEnv-v0", gym_kwargs={"g": 5.0})
    assert (env.duration, env.g) == (7, 5.0)
    env.close()
