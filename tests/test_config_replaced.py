"""Names of TF-Agents' classes that ours replace are refused in gin files, with our name."""

import importlib.util
import os
import subprocess
import sys

import pytest

from actor_learner import config
from actor_learner.configuring import catalog, modules, registrations, replaced
from actor_learner.support import errors
from tests.gin_files import write

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# TF-Agents' modules that the migration table names and that register something.
REPLACED_MODULES = (
    "tf_agents.environments.atari_preprocessing",
    "tf_agents.environments.suite_atari",
    "tf_agents.environments.suite_gym",
    "tf_agents.environments.suite_mujoco",
    "tf_agents.replay_buffers.reverb_replay_buffer",
    "tf_agents.train.actor",
    "tf_agents.train.learner",
    "tf_agents.train.ppo_learner",
)


def problems():
    with pytest.raises(errors.ConfigError) as caught:
        config.check(config.ConfigSource(("run.gin",)))
    return str(caught.value).split("\n")


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "written, complete, ours",
    [
        ("learner.Learner", "tf_agents.train.learner.Learner", "Learner"),
        ("train.learner.Learner", "tf_agents.train.learner.Learner", "Learner"),
        ("actor.Actor", "tf_agents.train.actor.Actor", "Actor"),
        ("ppo_learner.PPOLearner", "tf_agents.train.ppo_learner.PPOLearner", "PPOLearner"),
        ("suite_gym.load", "tf_agents.environments.suite_gym.load", "suite_gymnasium.load"),
    ],
)
def test_a_binding_of_a_replaced_class_is_refused_with_our_name(directory, written, complete, ours):
    write(directory, f"{written}.x = 1\n{complete}.x = 1\n")
    found = problems()
    assert found[0] == (
        f"run.gin:1: '{written}' is TF-Agents', which nothing here uses: write '{ours}' for ours, "
        f"or '{complete}' if code of your own calls that"
    )
    # The complete name is meant as it stands: only its parameter is wrong.
    assert len(found) == 2 and f"unknown parameter 'x' of {complete}" in found[1]


def test_references_and_blocks_are_refused_once(directory):
    write(
        directory,
        "Learner.triggers = [@actor.Actor()]\n"
        "learner.Learner:\n  strategy = None\n  triggers = []\n",
    )
    found = problems()
    assert [line.split(" is ")[0] for line in found] == [
        "run.gin:1: 'actor.Actor'",
        "run.gin:2: 'learner.Learner'",
    ]


def test_names_that_both_have_mean_ours(directory):
    write(
        directory,
        "suite_atari.load.discount = 0.5\nsuite_mujoco.load.discount = 0.5\n"
        "suite_pybullet.load.discount = 0.5\nAtariPreprocessing.frame_skip = 2\n"
        "Learner.checkpoint_interval = 10\nActor.name = 'x'\n",
    )
    config.check(config.ConfigSource(("run.gin",)))
    known = catalog.Catalog()
    assert known.find("suite_atari.load")[0].selector == "suite_atari.load"
    assert known.find("AtariPreprocessing")[0].selector == "AtariPreprocessing"


def test_every_configurable_of_a_replaced_module_has_a_counterpart_that_exists():
    known = catalog.Catalog()
    theirs = []
    for name in REPLACED_MODULES:
        path = importlib.util.find_spec(name).origin
        found = registrations.find(modules.parse(name, path)).configurables
        theirs += [configurable.selector for configurable in found]
    assert sorted(theirs) == sorted(replaced._OURS)
    for selector in theirs:
        ours = replaced._OURS[selector]
        assert [found.selector for found in known.find(ours)] == [ours]
        given = set(known.find(selector)[0].signature.parameters)
        assert given <= set(known.find(ours)[0].signature.parameters), selector


def run(program, directory):
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.splitlines()


PROGRAM = """
import sys
from actor_learner import config
from actor_learner.support import errors
try:
    config.{function}(config.ConfigSource(("run.gin",), ()))
except errors.ConfigError as error:
    print(error)
print("tensorflow" in sys.modules)
"""


@pytest.mark.parametrize("function, imports", [("check", "False"), ("load", "True")])
def test_checking_refuses_without_tensorflow_and_loading_refuses_too(directory, function, imports):
    write(directory, "learner.Learner.triggers = None\n")
    said = run(PROGRAM.format(function=function), directory)
    assert said[0].startswith("run.gin:1: 'learner.Learner' is TF-Agents', which nothing here uses")
    assert said[-1] == imports
