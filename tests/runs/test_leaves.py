"""The ready-made configurations, trained as they are but for their size."""

import gin
import numpy as np
import pytest
import reverb
from tf_agents.policies import random_py_policy

from actor_learner import config, experiment, run_directory
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.runs import demonstration, one_process

SHARED = (
    "Evaluation.interval = 0",
    "Evaluation.target_return = None",
    "Reporting.seconds = 0.001",
    "Learner.checkpoint_interval = 0",
    "Learner.summary_interval = 1",  # One graph, which records, instead of two.
)
SEQUENCES = (
    "Experiment.environment_steps = 420",
    "Experiment.learn_from = 150",
    "Experiment.updates_per_step = 0.02",
    "Experiment.collect_steps = 60",
)
TRANSITIONS = (
    "Experiment.environment_steps = 400",
    "Experiment.initial_random_steps = 200",
    "Experiment.batch_size = 8",
    "Evaluation.episodes = 2",
)
SMALL_DQN = ("Experiment.collect_steps = 64",)
SMALL_ACTOR_CRITIC = ("Experiment.updates_per_step = 0.2",)
UNROLLS = (
    "Experiment.environment_steps = 300",
    "Evaluation.episodes = 2",
    "GymnasiumEnvironment.num_envs = 4",
    "UnrollQueue.unroll_length = 16",
)
SMALL_PPO = ("ppo.epochs = 2", "ppo.minibatch_size = 32")
# An episode of Pong would be far longer than this test.
SHORT_GAMES = (
    "GymnasiumEnvironment.make_kwargs = {'max_num_frames_per_episode': 120}",
    "Evaluation.episodes = 1",
)
SHORT_RUNS = ("GymnasiumEnvironment.wrappers = [('TimeLimit', {'max_episode_steps': 40})]",)
SMALL_R2D2 = (
    "GymnasiumEnvironment.num_envs = 3",
    "Experiment.batch_size = 2",
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
        source = config.ConfigSource((leaf,), (*SHARED, *bindings))
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


@pytest.fixture
def load():
    """Loads a leaf as it is, for its values to be asked for."""

    def run(leaf):
        source = config.ConfigSource((leaf,))
        config.check(source)
        config.load(source)

    yield run
    gin.clear_config()


def check_rows(training, rows, evaluation_episodes):
    """Counters go up and agree with the run's, losses are numbers, the last policy is rated.

    Returns the row of its evaluation.
    """
    steps = [row["environment_steps"] for row in rows]
    assert steps == sorted(steps) and steps[-1] == training.environment_step
    assert rows[-1]["train_steps"] == training.train_step > 0
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses and np.isfinite(losses).all()
    (rated,) = (row for row in rows if "eval_return" in row)
    assert np.isfinite(rated["eval_return"]) and rated["eval_episodes"] == evaluation_episodes
    return rated


@pytest.mark.parametrize(
    "leaf, updates_per_step, bindings",
    [
        ("per_dqn_cartpole", 0.5, SMALL_DQN),
        ("c51_cartpole", 0.5, SMALL_DQN),
        ("dqn_lunarlander", 0.25, SMALL_DQN),
        ("td3_pendulum", 0.2, SMALL_ACTOR_CRITIC),
        ("sac_halfcheetah", 0.2, (*SMALL_ACTOR_CRITIC, *SHORT_RUNS)),
    ],
)
def test_leaves_with_replay_train_after_their_random_steps(train, leaf, updates_per_step, bindings):
    training, rows = train(leaf, (*TRANSITIONS, *bindings))
    check_rows(training, rows, evaluation_episodes=2)
    assert training.environment_step >= 400
    assert training.train_step == int((training.environment_step - 200) * updates_per_step)


@pytest.mark.parametrize(
    "leaf, episodes, bindings",
    [
        ("ppo_cartpole", 2, SMALL_PPO),
        ("ppo_pendulum", 2, SMALL_PPO),
        ("ppo_lunarlander", 2, SMALL_PPO),
        ("ppo_hopper", 2, SMALL_PPO),
        ("ppo_atari", 1, (*SMALL_PPO, *SHORT_GAMES, "ppo.fc_layer_params = (8,)")),
        ("impala_cartpole", 2, ()),
        ("ppo_tensor_cartpole", 2, SMALL_PPO),
        ("impala_tensor_cartpole", 2, ()),
    ],
)
def test_leaves_with_unrolls_train_once_on_every_step(train, leaf, episodes, bindings):
    environment = "TensorEnvironment" if "tensor" in leaf else "GymnasiumEnvironment"
    unrolls = [binding.replace("GymnasiumEnvironment", environment) for binding in UNROLLS]
    training, rows = train(leaf, (*unrolls, *bindings))
    check_rows(training, rows, evaluation_episodes=episodes)
    assert training.environment_step >= 300
    # Steps from one episode's end to the next one's start are in the unrolls, and are not counted.
    boundaries = training.train_step * 4 * 16 - training.environment_step
    assert rows[-1]["episodes"] - 4 <= boundaries <= rows[-1]["episodes"]


def test_cql_trains_on_a_recording_and_is_rated_in_the_environment(train, tmp_path):
    env = gymnasium_environment.GymnasiumEnvironment("Pendulum-v1", 2, vectorization="sync", seed=0)
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)
    demonstration.record_episodes(env, policy, tmp_path / "recorded", episodes=2)
    env.close()
    training, rows = train(
        "cql_pendulum",
        (
            f"RecordedReplay.path = '{tmp_path / 'recorded'}'",
            "Experiment.train_steps = 5",
            "Experiment.batch_size = 16",
            "Evaluation.episodes = 1",
        ),
    )
    check_rows(training, rows, evaluation_episodes=1)
    assert (training.train_step, training.environment_step) == (5, 0)


def test_the_memory_task_is_learned_from_sequences(train, monkeypatch):
    sent = []
    mutate = reverb.Client.mutate_priorities

    def spy(client, table, updates):
        sent.extend(updates.values())
        mutate(client, table, updates)

    monkeypatch.setattr(reverb.Client, "mutate_priorities", spy)
    training, rows = train(
        "r2d2_memory",
        (
            *SEQUENCES,
            "Experiment.batch_size = 4",
            "Evaluation.episodes = 8",
            "SequenceReplay.priority_offset = 50.0",  # No TD error of this task comes near.
        ),
    )
    assert sent and min(sent) >= 50.0
    rated = check_rows(training, rows, evaluation_episodes=8)
    assert rated["eval_return"] * 8 in range(9)
    assert training.train_step == int((training.environment_step - 150) * 0.02)
    assert rows[-1]["loss"] > 0
    assert 8 <= rows[-1]["episode_length"] <= 12
    assert rows[-1]["epsilon"] == pytest.approx((0.4 ** np.linspace(1, 8, 16)).mean(), rel=1e-5)


def test_the_long_memory_task_has_episodes_of_several_sequences(train):
    training, rows = train(
        "r2d2_memory_long",
        (*SEQUENCES, "Experiment.batch_size = 4", "Evaluation.episodes = 8"),
    )
    check_rows(training, rows, evaluation_episodes=8)
    assert training.train_step == int((training.environment_step - 150) * 0.02)
    longest = 24 + 2
    assert 8 <= rows[-1]["episode_length"] <= longest
    assert longest > gin.query_parameter("SequenceReplay.sequence_length") == 16
    assert gin.query_parameter("SequenceReplay.period") == 8
    assert gin.query_parameter("r2d2.burn_in") == 4


def test_atari_is_learned_from_pixels(train):
    training, rows = train("r2d2_atari", (*SEQUENCES, *SMALL_R2D2, *SHORT_GAMES))
    check_rows(training, rows, evaluation_episodes=1)
    assert training.train_step == int((training.environment_step - 150) * 0.02)
    assert rows[-1]["episode_length"] <= 30


def test_a_training_of_atari_copies_its_target_network_often_enough_to_learn(load):
    load("r2d2_atari")
    learned = gin.query_parameter("Experiment.environment_steps") - gin.query_parameter(
        "Experiment.learn_from"
    )
    train_steps = learned * gin.query_parameter("Experiment.updates_per_step")
    assert train_steps >= 50_000
    assert train_steps / gin.query_parameter("r2d2.target_update_period") >= 100


def test_the_control_is_the_same_agent_without_memory(load):
    load("r2d2_memory_control")
    assert gin.query_parameter("r2d2.lstm_size") is None
    assert gin.query_parameter("r2d2.learning_rate") == 1e-3
