"""DQN on CartPole as a TF-Agents script: build the parts, then collect and learn in a loop.

python examples/tf_agents_style.py --root_dir=/tmp/cartpole --num_iterations=2000
"""

import os

import tensorflow as tf
from absl import app, flags
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.train.utils import spec_utils, train_utils

from actor_learner import (
    Actor,
    Learner,
    ReplayServer,
    ReverbAddTrajectoryObserver,
    ReverbReplayBuffer,
    collect_metrics,
    eval_metrics,
    suite_gymnasium,
    triggers,
)
from actor_learner.learning import learner as learner_lib
from actor_learner.replay.server import tables

FLAGS = flags.FLAGS
flags.DEFINE_string("root_dir", None, "Where checkpoints, policies and summaries go.")
flags.DEFINE_integer("num_iterations", 5_000, "Turns of collecting and learning.")

TABLE = "uniform_table"
SEQUENCE_LENGTH = 2


def main(_):
    collect_env = suite_gymnasium.load("CartPole-v1")
    eval_env = suite_gymnasium.load("CartPole-v1")
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(collect_env)
    train_step = train_utils.create_train_step()
    agent = dqn_agent.DdqnAgent(
        time_step_spec,
        action_spec,
        q_network=q_network.QNetwork(observation_spec, action_spec, fc_layer_params=(100,)),
        optimizer=tf.keras.optimizers.Adam(1e-3),
        target_update_period=100,
        train_step_counter=train_step,
    )
    agent.initialize()

    server = ReplayServer([tables.uniform_table(TABLE, max_size=100_000)])
    replay = ReverbReplayBuffer(
        agent.collect_data_spec, TABLE, sequence_length=SEQUENCE_LENGTH, local_server=server
    )
    observer = ReverbAddTrajectoryObserver(
        replay.py_client, TABLE, sequence_length=SEQUENCE_LENGTH, stride_length=1
    )
    dataset = replay.as_dataset(sample_batch_size=64, num_steps=SEQUENCE_LENGTH).prefetch(4)

    collect_actor = Actor(
        collect_env,
        agent.collect_policy,
        train_step,
        steps_per_run=1,
        observers=[observer],
        metrics=collect_metrics(10),
        summary_dir=os.path.join(FLAGS.root_dir, learner_lib.TRAIN_DIR),
    )
    eval_actor = Actor(
        eval_env, agent.policy, train_step, episodes_per_run=5, metrics=eval_metrics(5)
    )
    agent_learner = Learner(
        FLAGS.root_dir,
        train_step,
        agent,
        lambda: dataset,
        triggers=[
            triggers.PolicySavedModelTrigger(
                os.path.join(FLAGS.root_dir, learner_lib.POLICY_SAVED_MODEL_DIR),
                agent,
                train_step,
                interval=1_000,
            ),
            triggers.StepPerSecondLogTrigger(train_step, interval=1_000),
        ],
    )

    for _ in range(100):  # Something to sample from, before the first turn.
        collect_actor.run()
    for _ in range(FLAGS.num_iterations):
        collect_actor.run()
        agent_learner.run(iterations=1)
        if agent_learner.train_step_numpy % 1_000 == 0:
            eval_actor.run()
            print(f"step {agent_learner.train_step_numpy}: {eval_actor.metrics[0].result():.1f}")

    observer.close()
    agent_learner.close()
    server.stop()


if __name__ == "__main__":
    flags.mark_flag_as_required("root_dir")
    app.run(main)
