"""Trains every agent on parts of batches, on several replicas, and on the whole batches, on one.

A program, since logical devices are made before TensorFlow is used:

    python -m tests.learning.replica_equality 2|4|group [AGENT …]

It prints, as JSON, by how much weights, priorities and losses differ, by agent: of 2 or 4 replicas
of a strategy, or of a group of two learners that talk over the wire.
"""

import json
import sys
from concurrent import futures

import numpy as np
import tensorflow as tf

LANES, STEPS = 16, 3  # As many lanes as four minibatches on each of four replicas take.


def _imports():
    """What may use TensorFlow's devices already while it is imported."""
    global algorithm, experience, minibatches, replica_step, tensor_spec, ts, unrolls, sequences_for
    global batch_for, trackable_view, CASES, sac_agent, cql_sac_agent, learner_group, packing
    global client, server
    from tensorflow.python.checkpoint import trackable_view
    from tf_agents.agents.cql import cql_sac_agent
    from tf_agents.agents.sac import sac_agent
    from tf_agents.specs import tensor_spec
    from tf_agents.trajectories import time_step as ts

    from actor_learner import experience, minibatches
    from actor_learner.agents import (
        algorithm,
        bc,
        c51,
        cql_sac,
        ddpg,
        dqn,
        impala,
        ppo,
        r2d2,
        sac,
        td3,
    )
    from actor_learner.jobs.exchange import learner_group
    from actor_learner.learning import replica_step
    from actor_learner.messaging import client, server
    from actor_learner.parameters import packing
    from tests.agents import unrolls
    from tests.agents.test_agents import batch_for
    from tests.agents.test_r2d2 import sequences_for

    spec = tensor_spec.BoundedTensorSpec
    discrete, continuous = spec([], tf.int64, 0, 2), spec([2], tf.float32, -2.0, 1.0)
    small = {"fc_layer_params": (4,), "learning_rate": 1e-2}
    two_small = {
        "actor_fc_layer_params": (4,),
        "critic_fc_layer_params": (4,),
        "actor_learning_rate": 1e-2,
        "critic_learning_rate": 1e-2,
        "gradient_clipping": 0.1,
        "target_update_period": 2,
    }
    normalized = {"normalize_observations": True, "normalize_rewards": True}
    recurrent = {"lstm_size": 3, "head_layer_params": (4,), "burn_in": 2}
    clipped = {"gradient_clipping": 0.1}
    CASES = {
        "dqn": (dqn.dqn, discrete, {**small, **clipped, **normalized}),
        "c51": (c51.c51, discrete, {**small, **clipped, "target_update_period": 2}),
        "sac": (sac.sac, continuous, {**two_small, **normalized}),
        "discrete_sac": (sac.sac, discrete, two_small),
        "td3": (td3.td3, continuous, {**two_small, "target_policy_noise": 1e-30}),
        "ddpg": (ddpg.ddpg, continuous, {**two_small, **normalized}),
        "ppo": (
            ppo.ppo,
            continuous,
            {**small, **clipped, **normalized, "epochs": 2, "minibatch_size": 1_000},
        ),
        "ppo_minibatches": (
            ppo.ppo,
            discrete,
            {**small, "epochs": 2, "minibatch_size": LANES, "max_kl": 0.02, "kl_penalty": 0.5},
        ),
        "ppo_recurrent": (
            ppo.ppo,
            discrete,
            {**small, "lstm_size": 3, "share_torso": True, "epochs": 2, "minibatch_size": 1_000},
        ),
        "impala": (
            impala.impala,
            discrete,
            {**small, **clipped, **normalized, "lstm_size": 3, "share_torso": True},
        ),
        "r2d2": (
            r2d2.r2d2,
            discrete,
            {**small, **recurrent, **clipped, **normalized, "target_update_period": 2},
        ),
        "bc": (bc.bc, continuous, {**small, **clipped, "normalize_observations": True}),
        "cql_sac": (
            cql_sac.cql_sac,
            continuous,
            {**two_small, "cql_samples": 2, "cql_threshold": 0.5},
        ),
    }


def without_chance():
    """Has agents draw the modes of distributions, the same uniform actions, and unshuffled items.

    Replicas draw other numbers for their parts than one learner draws for the whole.
    """

    def likeliest(self, time_steps, training=False):
        distribution = self._train_policy.distribution(time_steps, policy_state=()).action
        action = distribution.mode()
        return action, distribution.log_prob(action)

    def several(self, time_steps, samples, training=False):
        action, log_density = self._actions_and_log_probs(time_steps, training)
        return tf.repeat(action[:, None], samples, 1), tf.repeat(log_density[:, None], samples, 1)

    sac_agent.SacAgent._actions_and_log_probs = likeliest
    cql_sac_agent.CqlSacAgent._actions_and_log_probs = likeliest
    cql_sac_agent.CqlSacAgent._sample_and_transpose_actions_and_log_probs = several
    draw = tf.random.uniform

    def uniform(shape, *bounds, **more):
        if more or bounds != (-1.0, 1.0):  # Not what CQL draws.
            return draw(shape, *bounds, **more)
        return tf.fill(shape, 0.3)

    tf.random.uniform = uniform
    minibatches.shuffled_epochs = lambda items, epochs: tf.tile(items, [epochs])


def make(name):
    build, action, options = CASES[name]
    tf.keras.utils.set_random_seed(0)
    observation = tensor_spec.BoundedTensorSpec([3], tf.float32, -1, 1)
    counter = dict(dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    world = algorithm.World(
        ts.time_step_spec(observation),
        action,
        tf.Variable(0, trainable=False, **counter),
        tf.Variable(0, trainable=False, **counter),
    )
    return build(world, **options)


def batches(name, built):
    """Several whole batches, as NumPy arrays, with weights where the agent takes some."""
    tf.random.set_seed(1)
    generator = np.random.default_rng(1)
    made = []
    collector = None
    if built.kind == "unrolls":
        collector = unrolls.Collector(built.agent, LANES, 4)
    for number in range(STEPS):
        if collector is not None:
            batch = dict(experience=collector.collect())
            if name == "ppo_minibatches":
                batch = dict(experience=without_ends(batch["experience"]))
        elif built.kind == "sequences":
            first = (0, 3, 6)
            batch = dict(experience=sequences_for(built.agent, LANES, first, seed=number))
        else:
            transitions = batch_for(built.agent, LANES)
            reward = tf.constant(generator.normal(size=(LANES, 2)), tf.float32)
            batch = dict(experience=transitions._replace(reward=reward))
        if built.priorities is not None:
            batch["weights"] = tf.constant(generator.uniform(0.2, 1.0, LANES), tf.float32)
        made.append(tf.nest.map_structure(lambda leaf: leaf.numpy(), batch))
    return made


def without_ends(unroll):
    """The unroll without ends of episodes, which would make parts of other sizes."""
    trajectory = unroll.trajectory
    ones = tf.ones_like(trajectory.step_type)
    return unroll._replace(trajectory=trajectory._replace(step_type=ones, next_step_type=ones))


def interleaved(batch, replicas, minibatches_per_epoch):
    """The lanes in an order in which minibatches hold the same lanes as those of replicas.

    Unshuffled, minibatch k of the whole batch is its k-th part, and of replicas the k-th part of
    each one's lanes.
    """
    order = np.arange(LANES).reshape(minibatches_per_epoch, replicas, -1)
    order = order.transpose(1, 0, 2).reshape(-1)
    return tf.nest.map_structure(lambda leaf: leaf[order], batch)


def saved(agent):
    """The values of everything that a checkpoint holds of an agent, but of single lanes."""
    items = trackable_view.TrackableView(agent).descendants()
    found = [item for item in items if isinstance(item, tf.Variable)]
    return [item.numpy() for item in found if "running" not in item.name]


def train(name, replicas):
    """Losses and priorities of a few train steps, all variables then, and how far they moved."""
    devices = [f"CPU:{number}" for number in range(replicas)]
    strategy = tf.distribute.get_strategy() if replicas == 1 else mirrored(devices)
    with strategy.scope():
        built = make(name)
        built.agent.initialize()
        weights = built.agent.policy.variables()
        before = [weight.numpy() for weight in weights]
        step = replica_step.ReplicaStep(
            built.agent, strategy, after_train=None, use_kwargs=True, run_options=None
        )

        @tf.function(autograph=False)
        def take(parts):
            loss_info = step.train(parts)
            priorities = built.priorities and strategy.run(built.priorities, args=(loss_info,))
            return step.sum(loss_info.loss), priorities

        results = []
        for batch in BATCHES[name]:
            if name == "ppo_minibatches":
                batch = batch if replicas == 1 else interleaved(batch, replicas, 4)
            parts = tf.nest.map_structure(
                lambda leaf: distributed(strategy, np.split(leaf, replicas)), batch
            )
            loss, priorities = take(parts)
            results.append(loss.numpy())
            if priorities is not None:
                local = strategy.experimental_local_results(priorities)
                results.append(np.concatenate([part.numpy() for part in local]))
        moved = difference([weight.numpy() for weight in weights], before)
        return results, saved(built.agent), moved


def train_in_group(name):
    """As `train`, by two learners, of which the second joins the first, a stranger to it."""
    with server.Server({}) as wire, client.Client(wire.address, who="learner-1") as to_chief:
        chief = learner_group.ChiefGroup(wire, epoch=1, part_seconds=60.0)
        agents = [make(name) for _ in range(2)]
        for weight in agents[1].agent.variables:
            weight.assign(tf.zeros_like(weight))
        member = learner_group.MemberGroup(to_chief, lambda: packed[1])
        takes = [step_of(*both) for both in zip(agents, (chief, member))]
        parts = [halves(name, batch) for batch in BATCHES[name]]
        for take in takes:  # Makes the variables of optimizers, without training.
            take.get_concrete_function(parts[0][0])
        variables = [learner_group.state_variables(built.agent) for built in agents]
        packed = [packing.Packing(found) for found in variables]
        with futures.ThreadPoolExecutor(2) as threads:
            joined = threads.submit(member.join, 60.0)
            while not joined.done():
                chief.admit(lambda: packed[0])
            assert joined.result()
            results = []
            for part in parts:
                both = [threads.submit(*call) for call in zip(takes, part)]
                both = [one.result(120.0) for one in both]
                results.append(np.mean([loss.numpy() for loss, _ in both]))
                if both[0][1] is not None:
                    results.append(np.concatenate([told.numpy() for _, told in both]))
        for one, other in zip(*variables):
            assert np.array_equal(one.numpy(), other.numpy()), f"{one.name} is {other.name}"
        return results, saved(agents[0].agent), None


def halves(name, batch):
    if name == "ppo_minibatches":
        batch = interleaved(batch, 2, 4)
    return [
        tf.nest.map_structure(lambda leaf, half=half: tf.constant(np.split(leaf, 2)[half]), batch)
        for half in range(2)
    ]


def step_of(built, group):
    built.agent.initialize()
    step = replica_step.ReplicaStep(
        built.agent,
        tf.distribute.get_strategy(),
        after_train=None,
        use_kwargs=True,
        run_options=None,
        group=group,
    )

    @tf.function(autograph=False)
    def take(part):
        loss_info = step.train(part)
        return loss_info.loss, built.priorities and built.priorities(loss_info)

    return take


def mirrored(devices):
    # The collective operations of several strategies in one process mistake one another.
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def distributed(strategy, parts):
    if len(parts) == 1:
        return tf.constant(parts[0])
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(parts[context.replica_id_in_sync_group])
    )


def difference(found, expected):
    assert len(found) == len(expected), (len(found), len(expected))
    return max(
        float(np.max(np.abs(np.asarray(a, np.float64) - b), initial=0.0))
        for a, b in zip(found, expected)
    )


BATCHES = {}


def main(replicas, *names):
    cpu = tf.config.list_physical_devices("CPU")[0]
    in_group = replicas == "group"
    logical = [tf.config.LogicalDeviceConfiguration()] * (1 if in_group else int(replicas))
    tf.config.set_logical_device_configuration(cpu, logical)
    _imports()
    names = names or list(CASES)
    if in_group:
        # TF-Agents' own optimizer of its weight knows nothing of groups: such runs are refused.
        CASES["cql_sac"][2].pop("cql_threshold")
    BATCHES.update({name: batches(name, make(name)) for name in names})
    without_chance()
    differences = {}
    for name in names:
        expected, expected_variables, moved = train(name, 1)
        found, variables, _ = train_in_group(name) if in_group else train(name, int(replicas))
        differences[name] = {
            "told": difference(found, expected),
            "variables": difference(variables, expected_variables),
            "moved": moved,
        }
    print(json.dumps(differences))


if __name__ == "__main__":
    main(*sys.argv[1:])
