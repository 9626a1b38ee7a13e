"""Collecting CartPole into Reverb: environment steps per second, metrics included.

Ours: `Actor` with many lanes and a `BlockObserver`. Peer: TF-Agents' `Actor`, one lane, which is
all it can write to Reverb. Limit: the environment and the compiled policy in a bare loop.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf
from tf_agents.environments import suite_gym
from tf_agents.policies import py_tf_eager_policy
from tf_agents.train import actor as peer_actor

from actor_learner.acting import actor
from actor_learner.environments import gymnasium
from actor_learner.inference import graph
from benchmarks import harness, settings


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    for lanes in config.lanes:
        yield _row(config, lanes)


def _row(config: settings.Settings, lanes: int) -> harness.Row:
    built = settings.cartpole_dqn()
    agent = built.agent
    train_step = tf.Variable(0, dtype=tf.int64)
    ours = settings.LaneStream(agent.collect_data_spec, lanes)
    peer = settings.PeerStream(agent.collect_data_spec)
    env = gymnasium.GymnasiumEnvironment("CartPole-v1", lanes, seed=0)
    bare_env = gymnasium.GymnasiumEnvironment("CartPole-v1", lanes, seed=0)
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


def _bare_loop(env, agent, lanes: int):
    stream = graph.GraphInference(agent.collect_policy, lanes)
    vector_env = env.vector_env
    state = {"time_step": env.reset()}

    def run() -> int:
        time_step = state["time_step"]
        for _ in range(32):
            action = stream.act(time_step).action
            observation, _, _, _, _ = vector_env.step(action)
            time_step = time_step._replace(observation=observation)
        state["time_step"] = time_step
        return 32 * lanes

    return run
