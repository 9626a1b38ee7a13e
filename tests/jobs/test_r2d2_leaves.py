"""The leaves of R2D2, run as they are but for their size."""

import gin
import numpy as np
import pytest

from actor_learner import config, experiment, run_directory
from actor_learner.jobs import one_process

TINY = (
    "Experiment.environment_steps = 420",
    "Experiment.learn_from = 150",
    "Experiment.updates_per_step = 0.02",
    "Experiment.collect_steps = 60",
    "Experiment.evaluation_interval = 0",
    "Experiment.report_seconds = 0.001",
    "Learner.checkpoint_interval = 0",
)
ATARI = (
    # An episode of Pong would be far longer than this test.
    "GymnasiumEnvironment.make_kwargs = {'max_num_frames_per_episode': 120}",
    "GymnasiumEnvironment.num_envs = 3",
    "Experiment.batch_size = 2",
    "Experiment.evaluation_episodes = 1",
    "SequenceReplay.sequence_length = 16",
    "SequenceReplay.period = 8",
    "r2d2.burn_in = 4",
    "r2d2.fc_layer_params = (8,)",
    "r2d2.lstm_size = 8",
    "r2d2.head_layer_params = (8,)",
)


@pytest.fixture
def train(tmp_path):
    """Trains a leaf with some bindings; returns the training, closed, and its rows."""

    def run(leaf, bindings):
        source = config.ConfigSource((leaf,), (*TINY, *bindings))
        config.check(source)
        config.load(source)
        rows = []
        directory = run_directory.RunDirectory(tmp_path / leaf)
        with one_process.OneProcess(
            experiment.Experiment(), directory, seed=1, on_row=rows.append
        ) as training:
            config.check_all_used()
            training.run()
        return training, rows

    yield run
    gin.clear_config()


def test_the_memory_task_is_learned_from_sequences(train):
    training, rows = train(
        "r2d2_memory", ("Experiment.batch_size = 4", "Experiment.evaluation_episodes = 8")
    )
    assert training.train_step == int((training.environment_step - 150) * 0.02)
    assert np.isfinite(rows[-1]["loss"]) and rows[-1]["loss"] > 0
    assert 8 <= rows[-1]["episode_length"] <= 12
    assert rows[-1]["epsilon"] == pytest.approx((0.4 ** np.linspace(1, 8, 16)).mean(), rel=1e-5)
    (rated,) = (row for row in rows if "eval_return" in row)
    assert rated["eval_return"] * 8 in range(9) and rated["eval_episodes"] == 8


def test_atari_is_learned_from_pixels(train):
    training, rows = train("r2d2_atari", ATARI)
    assert training.train_step == int((training.environment_step - 150) * 0.02)
    assert np.isfinite(rows[-1]["loss"])
    assert rows[-1]["episode_length"] <= 30


def test_the_control_is_the_same_agent_without_memory():
    config.check(config.ConfigSource(("r2d2_memory_control",)))
    config.load(config.ConfigSource(("r2d2_memory_control",)))
    try:
        assert gin.query_parameter("r2d2.lstm_size") is None
        assert gin.query_parameter("r2d2.learning_rate") == 1e-3
    finally:
        gin.clear_config()
