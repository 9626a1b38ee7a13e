"""SAC with a learner, an actor and an evaluator that share a Reverb server.

Written for TF-Agents, and for what its wheel has of it: experience and variables each have a table,
policies are found as SavedModels, and all three wait for one another.
"""

# One import per line where tests replace it.
# ruff: noqa: I001
import os

import reverb
import tensorflow as tf
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.environments import suite_mujoco
from tf_agents.experimental.distributed import reverb_variable_container
from tf_agents.metrics import py_metrics
from tf_agents.networks import actor_distribution_network
from tf_agents.policies import random_py_policy
from tf_agents.replay_buffers import reverb_replay_buffer
from tf_agents.replay_buffers import reverb_utils
from tf_agents.specs import tensor_spec
from tf_agents.train import actor
from tf_agents.train import learner
from tf_agents.train import triggers
from tf_agents.train.utils import spec_utils, train_utils


def make_agent(env, train_step):
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    optimizers = [tf.keras.optimizers.Adam(learning_rate=3e-4) for _ in range(3)]
    return sac_agent.SacAgent(
        time_step_spec,
        action_spec,
        critic_network=critic_network.CriticNetwork(
            (observation_spec, action_spec), joint_fc_layer_params=(16,)
        ),
        actor_network=actor_distribution_network.ActorDistributionNetwork(
            observation_spec,
            action_spec,
            fc_layer_params=(16,),
            continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
        ),
        actor_optimizer=optimizers[0],
        critic_optimizer=optimizers[1],
        alpha_optimizer=optimizers[2],
        train_step_counter=train_step,
    )


def load_policy(root_dir, name):
    """Waits for the learner to have saved the policy."""
    directory = os.path.join(root_dir, learner.POLICY_SAVED_MODEL_DIR, name)
    return train_utils.wait_for_policy(
        directory, sleep_time_secs=0.2, num_retries=1000, load_specs_from_pbtxt=True
    )


def variables_of(policy, train_step):
    return {
        reverb_variable_container.POLICY_KEY: policy.variables(),
        reverb_variable_container.TRAIN_STEP_KEY: train_step,
    }


def connect(address):
    return reverb_variable_container.ReverbVariableContainer(
        address, table_names=[reverb_variable_container.DEFAULT_TABLE]
    )


def serve(root_dir, port):
    """Starts the server, with signatures taken from the saved policy."""
    policy = load_policy(root_dir, learner.COLLECT_POLICY_SAVED_MODEL_DIR)
    experience = tensor_spec.add_outer_dim(tensor_spec.from_spec(policy.collect_data_spec))
    variables = tf.nest.map_structure(
        lambda variable: tf.TensorSpec(variable.shape, dtype=variable.dtype),
        variables_of(policy, train_utils.create_train_step()),
    )
    return reverb.Server(
        [
            reverb.Table(
                name=reverb_replay_buffer.DEFAULT_TABLE,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                rate_limiter=reverb.rate_limiters.MinSize(20),
                max_size=10_000,
                signature=experience,
            ),
            reverb.Table(
                name=reverb_variable_container.DEFAULT_TABLE,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                rate_limiter=reverb.rate_limiters.MinSize(1),
                max_size=1,
                signature=variables,
            ),
        ],
        port=port,
    )


def train(root_dir, address, environment_name, num_iterations):
    env = suite_mujoco.load(environment_name)
    train_step = train_utils.create_train_step()
    agent = make_agent(env, train_step)
    saving = triggers.PolicySavedModelTrigger(
        os.path.join(root_dir, learner.POLICY_SAVED_MODEL_DIR), agent, train_step, interval=1000
    )
    variables = variables_of(agent.collect_policy, train_step)
    container = connect(address)  # The server comes after the first policy.
    container.push(variables)
    replay = reverb_replay_buffer.ReverbReplayBuffer(
        agent.collect_data_spec,
        sequence_length=2,
        table_name=reverb_replay_buffer.DEFAULT_TABLE,
        server_address=address,
    )
    trained = learner.Learner(
        root_dir,
        train_step,
        agent,
        lambda: replay.as_dataset(sample_batch_size=8, num_steps=2).prefetch(3),
        triggers=[saving, triggers.StepPerSecondLogTrigger(train_step, interval=10)],
    )
    for _ in range(num_iterations):
        trained.run(iterations=1)
        container.push(variables)


def collect(root_dir, address, environment_name, is_running):
    """Collects at random first, then with the newest policy, one step at a time."""
    env = suite_mujoco.load(environment_name)
    policy = load_policy(root_dir, learner.COLLECT_POLICY_SAVED_MODEL_DIR)
    train_step = train_utils.create_train_step()
    variables = variables_of(policy, train_step)
    container = connect(address)
    container.update(variables)
    observer = reverb_utils.ReverbAddTrajectoryObserver(
        reverb.Client(address),
        table_name=reverb_replay_buffer.DEFAULT_TABLE,
        sequence_length=2,
        stride_length=1,
    )
    at_random = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec())
    actor.Actor(env, at_random, train_step, steps_per_run=30, observers=[observer]).run()
    steps = py_metrics.EnvironmentSteps()
    collecting = actor.Actor(
        env,
        policy,
        train_step,
        steps_per_run=1,
        metrics=actor.collect_metrics(10),
        summary_dir=os.path.join(root_dir, learner.TRAIN_DIR, "0"),
        observers=[observer, steps],
    )
    while is_running():
        collecting.run()
        container.update(variables)
    observer.close()
    return int(steps.result())


def evaluate(summary_dir, env, policy, container, is_running, interval, report=None):
    """Evaluates at every `interval` train steps, and reports the mean return of each."""
    train_step = train_utils.create_train_step()
    variables = variables_of(policy, train_step)
    container.update(variables)
    metrics = actor.collect_metrics(buffer_size=1)
    (average_return,) = [m for m in metrics if isinstance(m, py_metrics.AverageReturnMetric)]
    evaluating = actor.Actor(
        env,
        policy,
        train_step,
        episodes_per_run=1,
        summary_dir=summary_dir,
        summary_interval=interval,
        metrics=metrics,
        name="eval_actor",
    )
    evaluated = None
    while is_running():
        step = int(train_step.numpy())
        if evaluated is None or step >= evaluated + interval:
            evaluating.run()
            evaluated = step
            if report:
                report(step, average_return.result())

        def is_the_same(step=step):
            container.update(variables)
            return is_running() and train_step.numpy() <= step

        train_utils.wait_for_predicate(wait_predicate_fn=is_the_same, sleep_time_secs=0)
