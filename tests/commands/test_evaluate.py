"""`actor-learner eval`: the best policy that a run has, wherever it is kept, is what is rated."""

import gin
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import random_py_policy

from actor_learner import cli, config, frozen_config, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.commands import evaluate
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables
from actor_learner.runs import rated_policy
from actor_learner.support import errors

SOURCE = config.ConfigSource(("dqn_cartpole",), ("dqn.fc_layer_params = (16,)",))


@pytest.fixture
def run_dir(tmp_path):
    made = run_directory.RunDirectory(tmp_path / "run")
    made.path.mkdir()
    made.describe(seed=0, argv=[])
    frozen_config.write(made, SOURCE)
    return made


def store_of(run_dir):
    return store_lib.ParameterStore(run_dir.path / store_lib.DIRECTORY)


def export(directory):
    directory.mkdir(parents=True)
    (directory / "saved_model.pb").touch()


def test_the_best_comes_before_the_tagged_before_the_last(run_dir):
    with pytest.raises(errors.ConfigError, match="has no policy yet"):
        rated_policy.find(run_dir)
    export(run_dir.policies / "greedy_policy")
    assert "(the last policy: no evaluation has found" in rated_policy.find(run_dir).what
    held = store_of(run_dir)
    held.push("policy", {"a": np.zeros(3)}, 5)
    assert "the last policy" in rated_policy.find(run_dir).what
    held.tag("policy", 5, "best")
    assert rated_policy.find(run_dir).what == f"version 5, tagged 'best', of {held}"
    export(run_dir.best / "policy")
    (run_dir.best / "score.json").write_text('{"train_step": 8}')
    best = f"{run_dir.best / 'policy'} (the best policy, of train step 8)"
    assert rated_policy.find(run_dir).what == best


def test_a_version_that_is_tagged_best_is_rated_with_its_own_values(run_dir, capsys):
    config.load(SOURCE)
    experiment = experiment_lib.Experiment()
    env = experiment.make_evaluation_environment(0, num_envs=1)
    steps = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    values = variables.values_of(experiment.make_algorithm(env, *steps).agent.policy)
    env.close()
    # It always pushes to the left, under which the pole falls within some eight to ten steps.
    left = {name: np.zeros_like(value) for name, value in values.items()}
    (bias,) = (name for name in left if left[name].shape == (2,))
    left[bias][0] = 1.0
    held = store_of(run_dir)
    held.push("policy", left, 5, tags=["best"])
    held.push("policy", values, 9)
    assert cli.main(["eval", str(run_dir), "--episodes=4"]) == 0
    said = capsys.readouterr().out
    gin.clear_config()
    assert f"version 5, tagged 'best', of {held}: return" in said
    mean = float(said.split("return ")[1].split()[0])
    assert 8.0 <= mean <= 10.5


def test_an_exported_policy_is_rated_and_recorded_whatever_inference_the_run_had(tmp_path):
    """It cannot be converted: a run that insists on lite has one that could be."""
    lite = ("Evaluator.inference = 'lite'", "Actor.inference = 'lite'")
    config.load(config.ConfigSource(("dqn_cartpole",), lite))
    run = run_directory.RunDirectory(tmp_path / "run")
    exported = rated_policy.RatedPolicy(
        "mine",
        lambda _, env: random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec()),
    )
    try:
        assert (evaluate._evaluate(run, exported, 0, 2, 0, None) >= 1.0).all()
        evaluate._record(run, exported, 0, 2, 0, str(tmp_path / "recorded"))
        assert any((tmp_path / "recorded").iterdir())
    finally:
        gin.clear_config()


def test_returns_that_are_not_finite_are_an_error(run_dir, capsys, monkeypatch):
    export(run_dir.best / "policy")
    monkeypatch.setattr(evaluate, "_evaluate", lambda *_: np.array([1.0, np.nan]))
    assert cli.main(["eval", str(run_dir)]) == 1
    gin.clear_config()
    said = capsys.readouterr()
    assert "cannot be evaluated: its returns are [1.0, nan]" in said.err and not said.out


def test_a_run_of_earlier_code_is_told_the_new_names(run_dir, capsys):
    export(run_dir.best / "policy")
    with open(run_dir.config, "a") as file:
        file.write("\nExperiment.target_return = 475.0\n")
    assert cli.main(["eval", str(run_dir)]) == 2
    assert "it is Evaluation.target_return now" in capsys.readouterr().err


def test_the_run_is_that_of_the_environment_variable_if_none_is_given(monkeypatch, capsys):
    monkeypatch.delenv("ACTOR_LEARNER_RUN", raising=False)
    assert cli.main(["eval"]) == 2
    assert "or set ACTOR_LEARNER_RUN" in capsys.readouterr().err
    monkeypatch.setenv("ACTOR_LEARNER_RUN", "nowhere")
    assert cli.main(["eval", "--episodes=2"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    # Flags of a job make it one, with the same default.
    assert cli.main(["eval", "--gin_file=dqn_cartpole"]) == 2
    assert "no name registry is given" in capsys.readouterr().err
