"""Masks: taken out of observations, laid out as choices, and drawn from."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import array_spec, tensor_spec
from tf_agents.trajectories import time_step as ts

from actor_learner import action_mask
from actor_learner.agents import algorithm, ppo, sac
from actor_learner.inference import python
from actor_learner.support import errors

B = tensor_spec.BoundedTensorSpec
VECTOR = B([3], tf.float32, -1, 1)
MASK = B([4], tf.int8, 0, 1)
CHOICE = B([], tf.int64, 1, 4)
PARTS = B([2], tf.int64, [0, 0], [1, 2])  # 2 and 3 values.


def test_an_observation_without_a_mask_has_none():
    assert action_mask.find(VECTOR, CHOICE) is None
    assert action_mask.find({"observation": VECTOR}, CHOICE) is None


def test_what_is_left_is_the_observation_or_the_other_parts():
    both = action_mask.find({"observation": VECTOR, "action_mask": MASK}, CHOICE)
    assert both.rest_spec == VECTOR
    spec = {"a": VECTOR, "b": VECTOR, "action_mask": MASK}
    assert action_mask.find(spec, CHOICE).rest_spec == {"a": VECTOR, "b": VECTOR}


def test_a_mask_is_split_off_with_any_leading_dimensions():
    mask = action_mask.find({"observation": VECTOR, "action_mask": MASK}, CHOICE)
    legal = np.array([[1, 0, 0, 1], [0, 1, 1, 0]], np.int8)
    seen = np.ones([2, 3], np.float32)
    rest, split = mask.split({"observation": seen, "action_mask": tf.constant(legal)})
    assert rest is seen
    np.testing.assert_array_equal(split, legal == 1)
    _, sequences = mask.split(
        {"observation": seen, "action_mask": tf.constant(legal[:, np.newaxis].repeat(5, 1))}
    )
    assert sequences.shape == [2, 5, 4]


def test_where_nothing_is_legal_everything_counts_as_legal():
    mask = action_mask.find({"observation": VECTOR, "action_mask": MASK}, CHOICE)
    _, split = mask.split({"observation": None, "action_mask": tf.zeros([2, 4], tf.int8)})
    assert split.numpy().all()


@pytest.mark.parametrize("joined", [True, False])
def test_masks_of_several_choices_are_padded_to_the_longest(joined):
    spec = (B([2], tf.int8, 0, 1), B([3], tf.int8, 0, 1))
    if joined:
        spec = tensor_spec.TensorSpec([5], tf.bool)
    mask = action_mask.find({"observation": VECTOR, "action_mask": spec}, PARTS)
    given = np.array([[1, 0, 0, 1, 1], [0, 0, 1, 0, 0]], np.bool_)
    value = (
        tf.constant(given)
        if joined
        else (tf.constant(given[:, :2], tf.int8), tf.constant(given[:, 2:], tf.int8))
    )
    _, split = mask.split({"observation": None, "action_mask": value})
    expected = [[1, 0, 0, 0, 1, 1], [1, 1, 0, 1, 0, 0]]  # The second first component has no limit.
    np.testing.assert_array_equal(split.numpy().astype(int), expected)


def test_legal_values_are_drawn_uniformly():
    spec = {
        "observation": array_spec.ArraySpec((3,), np.float32),
        "action_mask": array_spec.BoundedArraySpec((5,), np.int8, 0, 1),
    }
    action = array_spec.BoundedArraySpec((2,), np.int64, [0, 0], [1, 2])
    mask = action_mask.find(spec, action)
    lanes = 6_000
    observation = {"action_mask": np.tile(np.array([0, 1, 1, 0, 1], np.int8), (lanes, 1))}
    (chosen,) = mask.choose(observation, np.random.default_rng(0))
    assert chosen.shape == (lanes, 2)
    assert (chosen[:, 0] == 1).all()
    counts = np.bincount(chosen[:, 1], minlength=3)
    assert counts[1] == 0 and abs(counts[0] - lanes / 2) < 4 * np.sqrt(lanes / 4)


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(errors.SpecMismatchError, match="has 4 elements.*have 3 values in all"):
        action_mask.find({"observation": VECTOR, "action_mask": MASK}, B([], tf.int64, 0, 2))


def test_a_mask_of_floats_is_refused():
    spec = {"observation": VECTOR, "action_mask": B([4], tf.float32, 0, 1)}
    with pytest.raises(errors.SpecMismatchError, match="booleans or whole numbers"):
        action_mask.find(spec, CHOICE)


def continuous_world():
    return algorithm.World(
        ts.time_step_spec({"observation": VECTOR, "action_mask": B([4], tf.int32, 0, 1)}),
        B([2], tf.float32, -1.0, 1.0),
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )


@pytest.mark.parametrize(
    "make, options",
    [
        (sac.sac, {"actor_fc_layer_params": (4,), "critic_fc_layer_params": (4,)}),
        (ppo.ppo, {"fc_layer_params": (4,)}),
    ],
)
def test_agents_with_continuous_actions_take_a_mask_for_an_observation(make, options):
    world = continuous_world()
    assert action_mask.find(world.observation_spec, world.action_spec) is None
    policy = make(world, **options).agent.collect_policy
    array_specs = tensor_spec.to_nest_array_spec((world.observation_spec, world.action_spec))
    assert action_mask.for_policy(policy, *array_specs) is None
    stream = python.RandomInference(
        array_specs[1], (), 3, mask=action_mask.for_policy(policy, *array_specs)
    )
    observation = {"observation": np.zeros((3, 3), np.float32), "action_mask": np.eye(3, 4)}
    observation["action_mask"] = observation["action_mask"].astype(np.int32)
    step = ts.restart(observation, batch_size=3)
    assert stream.act(step).action.shape == (3, 2)
    step = tf.nest.map_structure(tf.constant, step)
    assert policy.action(step, policy.get_initial_state(3)).action.shape == [3, 2]
