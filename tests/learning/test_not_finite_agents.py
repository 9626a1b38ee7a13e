"""Every agent that is fed NaN and infinity: nothing of it is applied or saved, and it learns on."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.checkpoint import trackable_view
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import sac_agent
from tf_agents.networks import actor_distribution_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.agents import algorithm, bc, c51, cql_sac, ddpg, dqn, impala, ppo, r2d2, sac, td3
from actor_learner.learning import learner
from actor_learner.support import errors
from tests.agents import test_agents, test_r2d2, unrolls

B = tensor_spec.BoundedTensorSpec
OBSERVATION = B([3], tf.float32, -1, 1)
DISCRETE, CONTINUOUS = B([], tf.int64, 0, 2), B([2], tf.float32, -1.0, 1.0)
SMALL = {"fc_layer_params": (4,)}
TWO_SMALL = {"actor_fc_layer_params": (4,), "critic_fc_layer_params": (4,)}
RECURRENT = {"fc_layer_params": (4,), "lstm_size": 3, "head_layer_params": (4,), "burn_in": 0}

AGENTS = {
    "dqn": (dqn.dqn, DISCRETE, SMALL),
    "c51": (c51.c51, DISCRETE, SMALL),
    "sac": (sac.sac, CONTINUOUS, TWO_SMALL),
    "td3": (td3.td3, CONTINUOUS, TWO_SMALL),
    "ddpg": (ddpg.ddpg, CONTINUOUS, TWO_SMALL),
    "ppo": (ppo.ppo, CONTINUOUS, {**SMALL, "epochs": 2, "minibatch_size": 8, "max_kl": 10.0}),
    "impala": (impala.impala, DISCRETE, {**SMALL, "optimizer": "rmsprop"}),
    "r2d2": (r2d2.r2d2, DISCRETE, RECURRENT),
    "bc": (bc.bc, DISCRETE, SMALL),
    "cql_sac": (cql_sac.cql_sac, CONTINUOUS, {**TWO_SMALL, "cql_samples": 2}),
}
HUGE = 3e38  # Finite; its square, or the sum of two, is not.
HARMLESS = {
    ("c51", "reward", np.inf): "its returns are clipped to the largest that it knows",
    ("bc", "reward", np.inf): "it does not look at rewards",
    ("bc", "reward", np.nan): "it does not look at rewards",
}


def make(name):
    tf.keras.utils.set_random_seed(0)  # An infinite observation may die in a unit that is off.
    build, action, options = AGENTS[name]
    world = algorithm.World(
        ts.time_step_spec(OBSERVATION),
        action,
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    return world, build(world, **options).agent


def healthy_batch(name, agent):
    if name in ("ppo", "impala"):
        batch = unrolls.Collector(agent, 4, 4).collect()
    elif name == "r2d2":
        batch = test_r2d2.sequences_for(agent)
    else:
        batch = test_agents.batch_for(agent)
    return tf.nest.map_structure(lambda leaf: leaf.numpy(), batch)


def spoil(name, batch, place, value):
    """The batch with one `value` in the rewards or observations; or one that the loss overflows."""
    batch = tf.nest.map_structure(np.copy, batch)
    trajectory = getattr(batch, "trajectory", batch)
    if place == "loss":
        field = trajectory.observation if name in ("c51", "bc") else trajectory.reward
        field[...] = HUGE
    else:
        getattr(trajectory, place)[0, 0] = value
    return batch


class Feed:
    """A dataset of what is put into it."""

    def __init__(self, like):
        self.waiting = collections.deque()
        self._like = like

    def dataset(self):
        specs = tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape, a.dtype), self._like)

        def take():
            while True:
                yield tuple(tf.nest.flatten(self.waiting.popleft()))

        made = tf.data.Dataset.from_generator(take, output_signature=tuple(tf.nest.flatten(specs)))
        return made.map(lambda *leaves: (tf.nest.pack_sequence_as(specs, leaves), ()))


def saved(agent):
    """The values of everything that a checkpoint holds of an agent."""
    items = trackable_view.TrackableView(agent).descendants()
    return [item.numpy() for item in items if isinstance(item, tf.Variable)]


def assert_finite(values):
    for value in values:
        assert value.dtype.kind != "f" or np.isfinite(value).all()


def assert_equal(values, expected):
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_not_finite_is_neither_applied_nor_saved(name, tmp_path):
    world, agent = make(name)
    batch = healthy_batch(name, agent)
    feed = Feed(batch)

    def learn(what=batch):
        feed.waiting.append(what)
        trained.run()

    options = {"summary_interval": 0}
    arguments = (str(tmp_path), world.train_step, agent, feed.dataset)
    with learner.Learner(*arguments, **options) as trained:
        learn()
        for place in ("reward", "observation", "loss"):
            for value in (np.nan, np.inf) if place != "loss" else (HUGE,):
                bad = spoil(name, batch, place, value)
                if (name, place, value) in HARMLESS:
                    learn(bad)
                    assert_finite(saved(agent))
                    continue
                before, step = saved(agent), int(world.train_step.numpy())
                with pytest.raises(errors.NotFiniteError) as raised:
                    learn(bad)
                assert_equal(saved(agent), before)
                message = str(raised.value)
                assert f"train step {step}" in message and f"ckpt-{step}" in message
                for field in ("reward", "observation") if place != "loss" else ():
                    told = _line(message, field)
                    assert ("NaN" in told or "infinite" in told) == (field == place), message
                if name not in ("bc", "ppo"):  # PPO refuses rewards before it makes a target.
                    assert "target: " in message
        learn()
        assert_finite(saved(agent))
        good = int(world.train_step.numpy())
        assert trained.save_checkpoint().endswith(f"ckpt-{good}")
        for value in (np.nan, np.inf):
            kernel = agent.collect_policy.trainable_variables[-1]
            sound = kernel.numpy()
            kernel.assign(np.full(kernel.shape, value, np.float32))
            try:
                learn()
                learn()  # An actor's weights may not count in every train step.
            except errors.NotFiniteError as error:
                assert "The agent itself is not finite" in str(error)
            else:
                assert value == np.inf  # Squashed, it may do no harm for the time being.
            with pytest.raises(errors.NotFiniteError, match="no checkpoint is saved"):
                trained.save_checkpoint()
            kernel.assign(sound)
    world, agent = make(name)
    with learner.Learner(
        str(tmp_path), world.train_step, agent, feed.dataset, **options
    ) as trained:
        assert trained.restored_from.endswith(f"ckpt-{good}")
        assert_finite(saved(agent))
        learn()
        assert world.train_step.numpy() == good + 1


def _line(message, field):
    (line,) = (line for line in message.splitlines() if line.split(":")[0].endswith(field))
    return line


@pytest.mark.parametrize("optimizer", [tf.keras.optimizers.legacy.Adam, tf.keras.optimizers.Adam])
def test_an_agent_of_tf_agents_with_optimizers_of_keras_is_guarded_as_well(optimizer, tmp_path):
    pair = (OBSERVATION, CONTINUOUS)
    agent = sac_agent.SacAgent(
        ts.time_step_spec(OBSERVATION),
        CONTINUOUS,
        critic_network=critic_network.CriticNetwork(pair, joint_fc_layer_params=(4,)),
        actor_network=actor_distribution_network.ActorDistributionNetwork(
            *pair, fc_layer_params=(4,)
        ),
        actor_optimizer=optimizer(1e-3),
        critic_optimizer=optimizer(1e-3),
        alpha_optimizer=optimizer(1e-3),
        train_step_counter=tf.Variable(0, dtype=tf.int64),
    )
    agent.initialize()
    batch = healthy_batch("sac", agent)
    feed = Feed(batch)
    arguments = (str(tmp_path), agent.train_step_counter, agent, feed.dataset)
    with learner.Learner(*arguments, summary_interval=0) as trained:
        feed.waiting.append(batch)
        trained.run()
        before = saved(agent)
        for place in ("reward", "observation"):
            feed.waiting.append(spoil("sac", batch, place, np.nan))
            with pytest.raises(errors.NotFiniteError):
                trained.run()
            assert_equal(saved(agent), before)
        feed.waiting.append(batch)
        trained.run()
        assert agent.train_step_counter.numpy() == 2
