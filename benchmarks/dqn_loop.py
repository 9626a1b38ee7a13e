"""Collecting and learning in one loop, as TF-Agents' examples do: environment steps per second.

DQN on CartPole, one train step of batch 64 per environment step, with the same network. Peer:
TF-Agents' own `Actor`, `Learner` and `ReverbReplayBuffer`, which collect one step and train one.
Ours: the same loop with our classes, and, of several lanes, one that collects 64 steps, or one of
each lane, and trains as often.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Callable

from tf_agents.environments import suite_gym
from tf_agents.policies import py_tf_eager_policy
from tf_agents.train import actor as peer_actor
from tf_agents.train import learner as peer_learner

from actor_learner.acting import actor
from actor_learner.environments import gymnasium
from actor_learner.learning import learner
from benchmarks import harness, settings

ENV_ID = "CartPole-v1"
BATCH_SIZE = 64
FIRST_STEPS = 512
"""Collected before learning begins, so that there is something to sample."""
TRACED_TURNS = 3
"""The first ones compile what they call."""


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    yield _row(config, 1, 1)
    for lanes in config.lanes:
        yield _row(config, lanes, max(64, lanes))


def _row(config: settings.Settings, lanes: int, turn: int) -> harness.Row:
    steps = "1 step" if turn == 1 else f"{turn} steps"
    case = f"DQN 64x64, batch 64, CartPole loop, {lanes} lanes, {steps} a turn, steps/s"
    data_spec = settings.cartpole_dqn().agent.collect_data_spec
    ours, peer = settings.LaneStream(data_spec, lanes), settings.PeerStream(data_spec)
    env = gymnasium.GymnasiumEnvironment(ENV_ID, lanes, seed=0)
    with settings.closing(ours, peer, env), tempfile.TemporaryDirectory() as directory:
        run_ours, close = _our_loop(ours, env, f"{directory}/ours", turn)
        run_peer = _peer_loop(peer, f"{directory}/peer")
        for _ in range(TRACED_TURNS):
            run_ours()
            run_peer()
        results = harness.alternate(
            {
                "ours": harness.rate(run_ours, config.few_seconds),
                "peer": harness.rate(run_peer, config.few_seconds),
            },
            config.few_repetitions,
        )
        close()
    return harness.row("end_to_end", case, results, note="TF-Agents: 1 lane, 1 step a turn")


def _our_loop(
    stream: settings.LaneStream, env, directory: str, turn: int
) -> tuple[Callable[[], int], Callable[[], None]]:
    """One turn of ours, which returns its steps, and what closes the learner."""
    agent = settings.cartpole_dqn().agent

    def make(steps: int) -> actor.Actor:
        return actor.Actor(
            env,
            agent.collect_policy,
            agent.train_step_counter,
            steps_per_run=steps,
            observers=[stream.observer],
            metrics=actor.collect_metrics(10),
        )

    make(FIRST_STEPS).run()
    stream.observer.flush()
    collecting = make(turn)
    learning = learner.Learner(
        directory,
        agent.train_step_counter,
        agent,
        lambda: stream.dataset(BATCH_SIZE),
        checkpoint_interval=0,
    )

    def run() -> int:
        collecting.run()
        learning.run(iterations=turn)
        return turn

    return run, learning.close


def _peer_loop(stream: settings.PeerStream, directory: str) -> Callable[[], int]:
    """One turn of TF-Agents' classes."""
    agent = settings.peer_cartpole_dqn()
    env = suite_gym.load(ENV_ID)
    policy = py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True)

    def make(steps: int) -> peer_actor.Actor:
        return peer_actor.Actor(
            env,
            policy,
            agent.train_step_counter,
            steps_per_run=steps,
            observers=[stream.observer],
            metrics=peer_actor.collect_metrics(10),
        )

    make(FIRST_STEPS).run()
    stream.observer.flush()
    collecting = make(1)
    learning = peer_learner.Learner(
        directory,
        agent.train_step_counter,
        agent,
        lambda: stream.dataset(BATCH_SIZE),
        checkpoint_interval=-1,
    )

    def run() -> int:
        collecting.run()
        learning.run(iterations=1)
        return 1

    return run
