"""Policies of all agents we ship, observations of all kinds, and random numbers that are known."""

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_random_ops
from tf_agents.policies import greedy_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.agents import algorithm, bc, c51, cql_sac, ddpg, dqn, impala, ppo, r2d2, sac, td3

B = tensor_spec.BoundedTensorSpec
OBSERVATIONS = {
    "vector": B([4], tf.float32, -1, 1),
    "float64": B([4], tf.float64, -1, 1),
    "image": B([40, 40, 3], tf.uint8, 0, 255),
    "stacked frames": B([4, 36, 36], tf.uint8, 0, 255),
    "grey image": B([36, 40], tf.uint8, 0, 255),
    "memory": B([128], tf.uint8, 0, 255),
    "discrete": B([], tf.int64, 2, 5),
    "booleans": tf.TensorSpec([3], tf.bool),
    "dict": {
        "position": B([3], tf.float32, -1, 1),
        "camera": B([12, 12, 3], tf.uint8, 0, 255),
        "choice": B([2], tf.int64, 0, 3),
    },
    "tuple": (B([3], tf.float32, -1, 1), B([], tf.int32, 0, 3)),
}
DISCRETE = B([], tf.int64, 0, 2)
DISCRETE_32 = B([], tf.int32, 0, 3)
CONTINUOUS = B([2], tf.float32, [-2.0, -1.0], [2.0, 1.0])
CONTINUOUS_64 = B([2, 2], tf.float64, -2.0, 0.3)
MANY_CHOICES = B([3], tf.int64, [0, 0, 1], [1, 2, 3])
ALL_ACTIONS = {"choice": DISCRETE, "numbers": CONTINUOUS, "choices": MANY_CHOICES}

NORMALIZED = {"normalize_observations": True}
LAYERS = {"fc_layer_params": (8,)}
ACTOR_LAYERS = {"actor_fc_layer_params": (8,), "critic_fc_layer_params": (8,)}
MEMORY = {"lstm_size": 5}
AGENTS = {
    "dqn": (dqn.dqn, DISCRETE, LAYERS),
    "dqn int32": (dqn.dqn, DISCRETE_32, LAYERS),
    "dqn normalized": (dqn.dqn, DISCRETE, {**LAYERS, **NORMALIZED}),
    "c51": (c51.c51, DISCRETE, LAYERS),
    "sac": (sac.sac, CONTINUOUS, ACTOR_LAYERS),
    "sac float64": (sac.sac, CONTINUOUS_64, ACTOR_LAYERS),
    "sac normalized": (sac.sac, CONTINUOUS, {**ACTOR_LAYERS, **NORMALIZED}),
    "td3": (td3.td3, CONTINUOUS, ACTOR_LAYERS),
    "td3 float64": (td3.td3, CONTINUOUS_64, ACTOR_LAYERS),
    "ddpg": (ddpg.ddpg, CONTINUOUS, ACTOR_LAYERS),
    "ppo": (ppo.ppo, ALL_ACTIONS, LAYERS),
    "ppo float64": (ppo.ppo, CONTINUOUS_64, LAYERS),
    "ppo normalized": (ppo.ppo, CONTINUOUS, {**LAYERS, **NORMALIZED}),
    "ppo memory": (ppo.ppo, ALL_ACTIONS, {**LAYERS, **MEMORY, "share_torso": True}),
    "impala": (impala.impala, DISCRETE, LAYERS),
    "impala memory": (impala.impala, CONTINUOUS, {**LAYERS, **MEMORY}),
    "r2d2": (r2d2.r2d2, DISCRETE, {**LAYERS, **MEMORY}),
    "r2d2 normalized": (r2d2.r2d2, DISCRETE, {**LAYERS, **MEMORY, **NORMALIZED}),
    "bc": (bc.bc, DISCRETE, {**LAYERS, "epsilon": 0.3}),
    "bc continuous": (bc.bc, CONTINUOUS, LAYERS),
    "cql_sac": (cql_sac.cql_sac, CONTINUOUS, ACTOR_LAYERS),
}


def world(observation=OBSERVATIONS["vector"], action=DISCRETE, lanes=1):
    return algorithm.World(
        ts.time_step_spec(observation),
        action,
        tf.Variable(0, dtype=tf.int64, trainable=False),
        tf.Variable(0, dtype=tf.int64, trainable=False),
        num_lanes=lanes,
        total_lanes=lanes,
    )


def agent_of(name, observation="vector", lanes=1):
    """An agent whose weights are far from those it begins with, which many outputs ignore."""
    builder, action, options = AGENTS[name]
    tf.keras.utils.set_random_seed(3)
    agent = builder(world(OBSERVATIONS[observation], action, lanes), **options).agent
    agent.initialize()
    shake(agent.collect_policy)
    return agent


def shake(policy, scale=1.0, seed=0):
    """Adds noise to all trainable variables of a policy, and moves statistics."""
    generator = np.random.default_rng(seed)
    for variable in policy.variables():
        if variable.trainable:
            # Outputs of the order of 1: rounding errors of large numbers are large, and no errors.
            fan_in = np.prod(variable.shape[:-1])
            size = scale / np.sqrt(max(1.0, fan_in))
            variable.assign_add(size * generator.standard_normal(variable.shape))
        elif variable.name.split("/")[-1] in ("mean:0", "variance:0"):
            variable.assign_add(generator.uniform(0.1, 0.5, variable.shape))


def greedy(policy):
    if isinstance(policy, greedy_policy.GreedyPolicy):
        return policy
    return greedy_policy.GreedyPolicy(policy)


def time_step(generator, observation_spec, lanes, step_type=None):
    """A time step with random observations, as NumPy arrays; MID unless step types are given."""
    if step_type is None:
        step_type = np.ones(lanes, np.int32)
    return ts.TimeStep(
        np.asarray(step_type, np.int32),
        np.zeros(lanes, np.float32),
        np.ones(lanes, np.float32),
        tf.nest.map_structure(lambda spec: _sample(generator, spec, lanes), observation_spec),
    )


def _sample(generator, spec, lanes):
    shape = (lanes, *spec.shape)
    if spec.dtype == tf.bool:
        return generator.random(shape) < 0.5
    if spec.dtype.is_integer:
        drawn = generator.integers(spec.minimum, np.asarray(spec.maximum) + 1, shape)
        return drawn.astype(spec.dtype.as_numpy_dtype)
    return generator.standard_normal(shape).astype(spec.dtype.as_numpy_dtype)


def known_numbers(kind, shape, dtype, limits=()):
    """Numbers to be used in place of random ones: the same for the same arguments."""
    generator = np.random.default_rng(sum(kind.encode()))
    if kind == "integers":
        return generator.integers(*limits, shape).astype(dtype)
    if kind == "gumbel":
        return generator.gumbel(size=shape).astype(dtype)
    drawn = generator.random(shape) if kind == "uniform" else generator.standard_normal(shape)
    return drawn.astype(dtype)


def use_known_numbers(stream):
    """Lets a `LiteInference` draw known numbers, the same in every step."""

    def fill():
        for draw, block in zip(stream._noise._draws, stream._noise.blocks):
            block[:] = known_numbers(draw.kind, draw.shape, draw.dtype, draw.limits)

    stream._noise._fill = fill


def trace_with_known_numbers(monkeypatch):
    """Lets what TensorFlow traces draw known numbers."""

    def known(kind, original):
        def draw(*args, **kwargs):
            would_be = original(*args, **kwargs)  # Knows shape and dtype.
            shape, dtype = tuple(would_be.shape), would_be.dtype.as_numpy_dtype
            limits = args[1:3] if kind == "integers" else ()
            limits = [int(tf.get_static_value(tf.convert_to_tensor(limit))) for limit in limits]
            return tf.constant(known_numbers(kind, shape, dtype, limits))

        return draw

    def multinomial(logits, num_samples, output_dtype=tf.int64, **_):
        noise = known_numbers("gumbel", tuple(logits.shape), np.float32)
        return tf.argmax(logits + noise, axis=-1, output_type=output_dtype)[:, tf.newaxis]

    for kind, name in (
        ("normal", "random_standard_normal"),
        ("uniform", "random_uniform"),
        ("integers", "random_uniform_int"),
    ):
        monkeypatch.setattr(gen_random_ops, name, known(kind, getattr(gen_random_ops, name)))
    monkeypatch.setattr(gen_random_ops, "multinomial", multinomial)


def part_of(step, lanes):
    """Some lanes of a time step."""
    return tf.nest.map_structure(lambda leaf: leaf[lanes], step)


def flat(response):
    """All arrays of an answer."""
    return tf.nest.flatten((response.action, response.policy_info, response.previous_state))
