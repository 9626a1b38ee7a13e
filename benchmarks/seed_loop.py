"""TF-Agents' own loop, `collect_actor.run(); learner.run(iterations=1)`, with modules to choose.

The script that its users bring along: their agent, one environment without lanes, their observer
and replay buffer, one step and one train step a turn, metrics, summaries and the usual triggers.
Ours and theirs differ by nothing but where these modules are imported from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any, Callable

import reverb
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.networks import actor_distribution_network, q_network
from tf_agents.policies import py_tf_eager_policy
from tf_agents.train.utils import spec_utils, train_utils
from tf_agents.utils import common

TABLE = "experience"
BATCH_SIZE = 64
FIRST_STEPS = 512
"""Collected before learning begins."""
TRACED_TURNS = 3
"""The first ones compile what they call."""


@dataclasses.dataclass(frozen=True)
class Imports:
    """Where the script's modules come from.

    Attributes:
      actor, learner, triggers: As `tf_agents.train` has them.
      buffer: `reverb_replay_buffer`.
      observers: `reverb_utils`.
      suite: `suite_gym`.
    """

    actor: str
    learner: str
    triggers: str
    buffer: str
    observers: str
    suite: str

    def load(self, name: str) -> Any:
        return importlib.import_module(getattr(self, name))


OURS = Imports(
    actor="actor_learner.acting.actor",
    learner="actor_learner.learning.learner",
    triggers="actor_learner.learning.triggers",
    buffer="actor_learner.replay.reverb_replay_buffer",
    observers="actor_learner.replay.observers",
    suite="actor_learner.environments.suite_gymnasium",
)
THEIRS = Imports(
    actor="tf_agents.train.actor",
    learner="tf_agents.train.learner",
    triggers="tf_agents.train.triggers",
    buffer="tf_agents.replay_buffers.reverb_replay_buffer",
    observers="tf_agents.replay_buffers.reverb_utils",
    suite="tf_agents.environments.suite_gym",
)


def dqn(env: Any, train_step: tf.Variable) -> tf_agent.TFAgent:
    """TF-Agents' DQN, 64x64."""
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    return dqn_agent.DqnAgent(
        time_step_spec,
        action_spec,
        q_network=q_network.QNetwork(observation_spec, action_spec, fc_layer_params=(64, 64)),
        optimizer=tf.keras.optimizers.Adam(1e-3),
        epsilon_greedy=0.1,
        target_update_period=100,
        td_errors_loss_fn=common.element_wise_squared_loss,
        train_step_counter=train_step,
    )


def sac(env: Any, train_step: tf.Variable) -> tf_agent.TFAgent:
    """TF-Agents' SAC, 64x64."""
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    return sac_agent.SacAgent(
        time_step_spec,
        action_spec,
        critic_network=critic_network.CriticNetwork(
            (observation_spec, action_spec), joint_fc_layer_params=(64, 64)
        ),
        actor_network=actor_distribution_network.ActorDistributionNetwork(
            observation_spec,
            action_spec,
            fc_layer_params=(64, 64),
            continuous_projection_net=(tanh_normal_projection_network.TanhNormalProjectionNetwork),
        ),
        actor_optimizer=tf.keras.optimizers.Adam(3e-4),
        critic_optimizer=tf.keras.optimizers.Adam(3e-4),
        alpha_optimizer=tf.keras.optimizers.Adam(3e-4),
        target_update_tau=0.005,
        train_step_counter=train_step,
    )


@contextlib.contextmanager
def loop(
    imports: Imports,
    env_id: str,
    make_agent: Callable[[Any, tf.Variable], tf_agent.TFAgent],
    directory: str,
) -> Iterator[Callable[[], int]]:
    """The whole script; gives what takes one turn and returns 1."""
    env = imports.load("suite").load(env_id)
    train_step = train_utils.create_train_step()
    agent = make_agent(env, train_step)
    agent.initialize()
    server = reverb.Server([_table()])
    buffer = imports.load("buffer").ReverbReplayBuffer(
        agent.collect_data_spec, sequence_length=2, table_name=TABLE, local_server=server
    )
    observer = imports.load("observers").ReverbAddTrajectoryObserver(
        buffer.py_client, TABLE, sequence_length=2, stride_length=1
    )
    policy = py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True)
    actor = imports.load("actor")
    initial = actor.Actor(env, policy, train_step, steps_per_run=FIRST_STEPS, observers=[observer])
    initial.run()
    observer.flush()
    collect_actor = actor.Actor(
        env,
        policy,
        train_step,
        steps_per_run=1,
        observers=[observer],
        metrics=actor.collect_metrics(10),
        summary_dir=f"{directory}/collect",
    )
    triggers = imports.load("triggers")
    learner = imports.load("learner").Learner(
        directory,
        train_step,
        agent,
        lambda: buffer.as_dataset(sample_batch_size=BATCH_SIZE, num_steps=2).prefetch(50),
        triggers=[
            triggers.PolicySavedModelTrigger(
                f"{directory}/policies", agent, train_step, interval=100_000
            ),
            triggers.StepPerSecondLogTrigger(train_step, interval=1_000),
        ],
    )

    def turn() -> int:
        collect_actor.run()
        learner.run(iterations=1)
        return 1

    for _ in range(TRACED_TURNS):
        turn()
    try:
        yield turn
    finally:
        observer.close()
        if hasattr(learner, "close"):
            learner.close()
        server.stop()


def _table() -> reverb.Table:
    return reverb.Table(
        TABLE,
        max_size=100_000,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
