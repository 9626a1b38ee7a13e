"""A run begins from what another has learned, or goes on from its own checkpoint."""

import argparse

import gin
import numpy as np
import pytest

from actor_learner import config, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.commands import train
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables
from actor_learner.runs import one_process, warm_start
from actor_learner.support import errors

BINDINGS = (
    "Experiment.environment_steps = 300",
    "Experiment.initial_random_steps = 100",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 1",
    "GymnasiumEnvironment.num_envs = 4",
    "dqn.fc_layer_params = (16,)",
)


def parsed(*argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--gin_param", action="append", default=[])
    warm_start.add_flag(parser)
    return parser.parse_args(argv).gin_param


def build(run_dir, *bindings):
    config.load(config.ConfigSource(("dqn_cartpole",), (*BINDINGS, *bindings)))
    return one_process.OneProcess(experiment_lib.Experiment(), run_dir, seed=1)


def values_of(training):
    agent = training._algorithm.agent
    return [np.array(v) for v in agent.policy.variables()], [
        np.array(v) for v in agent._target_q_network.variables
    ]


@pytest.fixture(autouse=True)
def clear():
    yield
    gin.clear_config()


def test_the_flag_is_a_binding_with_a_path_that_holds_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parsed("--gin_param=a.b = 1", "--warm_start=runs/x@best") == [
        "a.b = 1",
        f"WarmStart.source = '{tmp_path}/runs/x@best'",
    ]
    assert parsed() == []


def test_a_new_run_begins_from_the_version_asked_for_and_an_old_one_goes_on(tmp_path):
    runs = [run_directory.RunDirectory(tmp_path / name) for name in ("earlier", "later")]
    for run in runs:
        run.path.mkdir()
    with build(runs[0]) as training:
        fresh, _ = values_of(training)
        named = variables.values_of(training._algorithm.agent.policy)
    taught = {name: value + 1.0 for name, value in named.items()}
    held = store_lib.ParameterStore(runs[0].path / store_lib.DIRECTORY)
    held.push("policy", taught, 7, tags=["champion"])
    held.push("policy", named, 8)
    (flag,) = parsed(f"--warm_start={runs[0]}@champion")
    with build(runs[1], flag) as training:
        config.check_all_used()
        policy, target = values_of(training)
        for before, now, copied in zip(fresh, policy, target):
            np.testing.assert_array_equal(now, before + 1.0)
            np.testing.assert_array_equal(copied, now)
        assert training.run() == one_process.COMPLETED
        learned, _ = values_of(training)
    held.gc("policy", keep=1)
    held.untag("policy", "champion")
    held.gc("policy", keep=1)  # What it began from is there no more, and no more needed.
    with build(runs[1], flag) as training:
        assert training.restored_from is not None
        for before, now in zip(learned, values_of(training)[0]):
            np.testing.assert_array_equal(now, before)


def test_what_does_not_exist_or_fit_is_refused(tmp_path):
    run = run_directory.RunDirectory(tmp_path / "run")
    run.path.mkdir()
    with pytest.raises(errors.ConfigError, match="WarmStart.source = '/nowhere': cannot start"):
        build(run, "WarmStart.source = '/nowhere'")
    held = store_lib.ParameterStore(tmp_path / "store")
    held.push("policy", {"a": np.zeros(3)}, 1)
    with pytest.raises(errors.SpecMismatchError, match="a is there, but not among"):
        build(run, f"WarmStart.source = '{tmp_path}/store'")


def test_a_resumed_run_cannot_begin_anew(tmp_path):
    (flag,) = parsed(f"--warm_start={tmp_path}")
    with pytest.raises(errors.ConfigError, match="leave out --warm_start"):
        train.run(train.TrainOptions((), (flag,), resume=str(tmp_path)))
