"""No agent takes an illegal action: not at random, not exploring, not greedily, not learning to."""

import functools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import evaluation_settings, experiment, run_directory
from actor_learner.agents import algorithm, c51, dqn, impala, ppo, r2d2, sac
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments import mask_from_info
from actor_learner.replay.streams import sequence_replay, unroll_queue
from actor_learner.runs import one_process
from tests import masked_environment

SMALL = {"fc_layer_params": (16,)}
QUEUE = functools.partial(unroll_queue.UnrollQueue, 16)
AGENTS = {
    "dqn": (functools.partial(dqn.dqn, **SMALL, epsilon_decay_steps=500, gamma=0.0), None),
    "dqn, normalised": (
        functools.partial(dqn.dqn, **SMALL, gamma=0.5, normalize_observations=True),
        None,
    ),
    "c51": (
        functools.partial(c51.c51, **SMALL, gamma=0.0, min_q_value=-1.0, max_q_value=2.0),
        None,
    ),
    "sac": (
        functools.partial(
            sac.sac, actor_fc_layer_params=(16,), critic_fc_layer_params=(16,), gamma=0.0
        ),
        None,
    ),
    "r2d2": (
        functools.partial(r2d2.r2d2, **SMALL, lstm_size=8, head_layer_params=(8,), burn_in=0),
        functools.partial(sequence_replay.SequenceReplay, sequence_length=8, period=4),
    ),
    "ppo": (
        functools.partial(ppo.ppo, **SMALL, epochs=4, minibatch_size=64, learning_rate=1e-2),
        QUEUE,
    ),
    "impala": (functools.partial(impala.impala, **SMALL), QUEUE),
    "ppo, memory": (
        functools.partial(ppo.ppo, **SMALL, lstm_size=8, share_torso=True, epochs=1),
        QUEUE,
    ),
}


def train(run_dir, make_env, agent, replay, steps=600):
    def environment(seed, num_envs=4):
        return gymnasium_environment.GymnasiumEnvironment(make_env, num_envs, seed=seed)

    tf.keras.utils.set_random_seed(0)
    with one_process.OneProcess(
        experiment.Experiment(
            environment,
            agent,
            replay=None if replay is None else replay(),
            environment_steps=steps,
            initial_random_steps=None if replay else 100,
            updates_per_step=None if replay in (QUEUE,) else 0.25,
            batch_size=16 if replay is not QUEUE else experiment.BATCH_SIZE,
            evaluation=evaluation_settings.Evaluation(interval=300, episodes=4),
        ),
        run_directory.RunDirectory(run_dir),
        seed=1,
    ) as training:
        assert training.run() == one_process.COMPLETED
        assert training.train_step > 0
        return training


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_only_ever_takes_legal_actions(tmp_path, agent):
    """The environment raises otherwise; its observations say nothing about what is legal."""
    train(tmp_path / "run", masked_environment.Forbidding, *AGENTS[agent])


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("agent", ["ppo", "impala"])
def test_every_choice_of_a_multi_discrete_action_is_legal(tmp_path, agent, joined):
    make_env = functools.partial(masked_environment.ForbiddingParts, joined=joined)
    train(tmp_path / "run", make_env, *AGENTS[agent], steps=300)


def test_a_mask_in_the_info_counts_as_one_in_the_observation(tmp_path):
    def make_env():
        return mask_from_info.MaskFromInfo(masked_environment.Forbidding(in_info=True))

    train(tmp_path / "run", make_env, *AGENTS["dqn"], steps=300)


def test_a_multi_binary_observation_is_taken_in_by_an_agent(tmp_path):
    """TF-Agents cannot draw such observations, which it does to build networks."""

    class Switches(gymnasium.Env):
        observation_space = gymnasium.spaces.MultiBinary(4)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 1.0, bool(action), False, {}

    train(tmp_path / "run", Switches, *AGENTS["dqn"], steps=300)


@pytest.mark.parametrize("double", [True, False])
def test_values_of_illegal_actions_are_no_part_of_targets(double):
    """Where the best action is illegal, the next best one counts."""
    observation = {
        "observation": tensor_spec.BoundedTensorSpec([3], tf.float32, -1, 1),
        "action_mask": tensor_spec.BoundedTensorSpec([5], tf.int8, 0, 1),
    }
    world = algorithm.World(
        ts.time_step_spec(observation),
        tensor_spec.BoundedTensorSpec([], tf.int64, 0, 4),
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    agent = dqn.dqn(world, fc_layer_params=(8,), double=double).agent
    agent.initialize()
    seen = {"observation": tf.ones([2, 3]), "action_mask": tf.ones([2, 5], tf.int8)}
    step = ts.TimeStep(tf.ones([2], tf.int32), tf.ones([2]), tf.ones([2]), seen)
    values = agent._q_values(agent._target_q_network, step).numpy()[0]
    np.testing.assert_allclose(agent._compute_next_q_values(step, ()), [values.max()] * 2)
    mask = np.tile((values < values.max()).astype(np.int8), (2, 1))
    masked = step._replace(observation={**seen, "action_mask": tf.constant(mask)})
    expected = [np.sort(values)[-2]] * 2
    np.testing.assert_allclose(agent._compute_next_q_values(masked, ()), expected)
