"""Collecting CartPole into Reverb: environment steps per second, metrics included.

Ours: `Actor` with many lanes and a `BlockObserver`. Peer: TF-Agents' `Actor`, one lane, which is
all it can write to Reverb. Limit: the step of Gymnasium's own vector environment and a TFLite call
of the same network, and nothing else: no exploration, no time steps, no metrics, nothing written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

import gymnasium as gymnasium_lib
import numpy as np
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.environments import suite_gym
from tf_agents.policies import py_tf_eager_policy
from tf_agents.train import actor as peer_actor

from actor_learner.acting import actor
from actor_learner.environments import gymnasium
from benchmarks import harness, settings


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes in config.collect_lanes:
        yield _row(config, lanes)


def _row(config: settings.Settings, lanes: int) -> harness.Row:
    built = settings.cartpole_dqn()
    agent = built.agent
    train_step = tf.Variable(0, dtype=tf.int64)
    ours = settings.LaneStream(agent.collect_data_spec, lanes)
    peer = settings.PeerStream(agent.collect_data_spec)
    env = gymnasium.GymnasiumEnvironment("CartPole-v1", lanes, seed=0)
    bare_env = gymnasium_lib.make_vec(
        "CartPole-v1", num_envs=lanes, vectorization_mode="vector_entry_point"
    )
    with settings.closing(ours, peer, env, bare_env):
        steps_per_run = 32 * lanes
        our_actor = actor.Actor(
            env,
            agent.collect_policy,
            train_step,
            steps_per_run=steps_per_run,
            observers=[ours.observer],
            metrics=actor.collect_metrics(10),
        )
        their_actor = peer_actor.Actor(
            suite_gym.load("CartPole-v1"),
            py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True),
            train_step,
            steps_per_run=32,
            observers=[peer.observer],
            metrics=peer_actor.collect_metrics(10),
        )

        def run_ours() -> int:
            our_actor.run()
            return steps_per_run

        def run_peer() -> int:
            their_actor.run()
            return 32

        results = harness.alternate(
            {
                "ours": harness.rate(run_ours, config.seconds),
                "peer": harness.rate(run_peer, config.seconds),
                "limit": harness.rate(_bare_loop(bare_env, agent, lanes), config.seconds),
            },
            config.repetitions,
        )
    return harness.row("collect", f"{lanes} lanes", results)


def _bare_loop(
    env: gymnasium_lib.vector.VectorEnv, agent: dqn_agent.DqnAgent, lanes: int
) -> Callable[[], int]:
    """32 steps of an environment with the greedy actions of a network, by TFLite."""
    network = agent._q_network
    spec = tf.TensorSpec([lanes, 4], tf.float32)
    function = tf.function(lambda observation: network(observation)[0], autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function(spec)], network
    )
    interpreter = tf.lite.Interpreter(model_content=converter.convert(), num_threads=1)
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]["index"]
    found = interpreter.get_output_details()[0]["index"]
    env.reset(seed=0)
    state = {"observation": np.zeros((lanes, 4), np.float32)}

    def run() -> int:
        observation = state["observation"]
        for _ in range(32):
            interpreter.set_tensor(given, observation)
            interpreter.invoke()
            action = interpreter.get_tensor(found).argmax(axis=1)
            observation, _, _, _, _ = env.step(action)
        state["observation"] = observation
        return 32 * lanes

    return run
