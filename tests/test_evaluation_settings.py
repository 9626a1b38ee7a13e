"""The group of settings `Evaluation`: bound by gin, checked, and told to users of old names."""

import subprocess
import sys

import gin
import pytest

from actor_learner import config, evaluation_settings
from actor_learner import experiment as experiment_lib
from actor_learner.support import errors


@pytest.fixture
def load():
    """Builds the experiment of dqn_cartpole with some bindings."""

    def load(*bindings):
        source = config.ConfigSource(("dqn_cartpole",), bindings)
        config.check(source)
        config.load(source)
        return experiment_lib.Experiment()

    yield load
    gin.clear_config()


def test_a_gin_file_binds_the_settings_of_evaluation(load):
    settings = load(
        "Evaluation.interval = 7", "Evaluation.episodes = 5", "Evaluation.lanes = 2"
    ).evaluation
    assert (settings.interval, settings.episodes, settings.lanes) == (7, 5, 2)
    assert settings.target_return == 475.0  # The leaf's.
    assert load("Evaluation.episodes = 5").evaluation.lanes == 5


def test_python_code_gives_them_as_an_object(load):
    made = evaluation_settings.Evaluation(interval=3, target_return=1.0)
    experiment = experiment_lib.Experiment(load().environment, load().agent, evaluation=made)
    assert experiment.evaluation is made and made.episodes == 20


@pytest.mark.parametrize(
    "name, value, least", [("interval", -1, 0), ("episodes", 0, 1), ("lanes", 0, 1)]
)
def test_impossible_values_are_refused(name, value, least):
    with pytest.raises(errors.ConfigError, match=f"Evaluation.{name} must be at least {least}"):
        evaluation_settings.Evaluation(**{name: value})


def test_a_scope_changes_single_arguments_of_the_environment_that_is_evaluated_in(load):
    experiment = load(
        "Evaluation.environment = @evaluation/GymnasiumEnvironment",
        "evaluation/GymnasiumEnvironment.max_episode_steps = 3",
        "Evaluation.episodes = 2",
    )
    training, evaluating = (
        experiment.make_environment(0),
        experiment.make_evaluation_environment(0),
    )
    assert (training.batch_size, evaluating.batch_size) == (16, 2)
    assert training.name == evaluating.name == "CartPole-v1"
    last = []
    for env in (training, evaluating):
        env.reset()
        for _ in range(3):
            step = env.step([0] * env.batch_size)
        last.append(bool(step.is_last().all()))
        env.close()
    assert last == [False, True]


@pytest.mark.parametrize(
    "old, new",
    [
        ("target_return", "target_return"),
        ("evaluation_interval", "interval"),
        ("evaluation_episodes", "episodes"),
        ("evaluation_lanes", "lanes"),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(tmp_path, old, new):
    path = tmp_path / "old.gin"
    path.write_text(f"include 'dqn_cartpole.gin'\nExperiment.{old} = 3\n")
    with pytest.raises(errors.ConfigError) as raised:
        config.check(config.ConfigSource((str(path),), (f"Experiment.{old} = 3",)))
    in_file, on_command_line = str(raised.value).splitlines()
    said = f"unknown parameter '{old}' of Experiment: it is Evaluation.{new} now"
    assert in_file == f"{path}:2: {said}"
    assert on_command_line == f"--gin_param 'Experiment.{old} = 3': {said}"


def test_an_old_name_is_found_before_tensorflow_is_imported():
    program = """
import sys
from actor_learner import config
from actor_learner.support import errors
try:
    config.check(config.ConfigSource(("dqn_cartpole",), ("Experiment.target_return = 3",)))
except errors.ConfigError:
    sys.exit("tensorflow" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=200)


def test_atari_is_rated_by_the_scores_that_the_game_gives(load):
    ale_py = pytest.importorskip("ale_py")
    del ale_py
    for leaf in ("ppo_atari", "r2d2_atari"):
        config.load(config.ConfigSource((leaf,), ("Evaluation.episodes = 1",)))
        experiment = experiment_lib.Experiment()
        env = experiment.make_evaluation_environment(0)
        given = env.vector_env.spec.kwargs
        env.close()
        assert given["reward_clipping"] is False and given["episodic_life"] is False
        assert given["repeat_action_probability"] == 0.0
