"""Python policies and random actions as inference streams."""

import numpy as np
import pytest
from tf_agents.policies import random_py_policy, scripted_py_policy
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import python, streams
from actor_learner.support import errors

OBSERVATION = array_spec.ArraySpec((2,), np.float32)
ACTION = array_spec.BoundedArraySpec((), np.int64, 0, 4)


def time_step(lanes, step_type=1):
    return ts.TimeStep(
        np.full(lanes, step_type, np.int32),
        np.zeros(lanes, np.float32),
        np.ones(lanes, np.float32),
        np.zeros((lanes, 2), np.float32),
    )


def test_a_random_py_policy_acts_for_one_unbatched_lane_and_for_many():
    policy = random_py_policy.RandomPyPolicy(ts.time_step_spec(OBSERVATION), ACTION)
    assert streams.stream_for(policy, 1, batched=False).act(time_step(1)).action.shape == (1,)
    assert streams.stream_for(policy, 3, batched=True).act(time_step(3)).action.shape == (3,)


def test_an_unbatched_policy_starts_afresh_with_each_episode():
    script = [(1, np.int64(4)), (1, np.int64(2))]
    policy = scripted_py_policy.ScriptedPyPolicy(ts.time_step_spec(OBSERVATION), ACTION, script)
    stream = python.PyPolicyInference(policy, 1, batched=False)
    first, second = time_step(1, step_type=0), time_step(1)
    assert [int(stream.act(step).action[0]) for step in (first, second, first, second)] == [
        4, 2, 4, 2,
    ]  # fmt: skip


def test_random_actions_cover_the_bounds_and_repeat_with_the_seed():
    spec = {
        "discrete": array_spec.BoundedArraySpec((), np.int32, 1, 3),
        "continuous": array_spec.BoundedArraySpec((2,), np.float32, [-2, 0], [2, 1]),
    }
    info = array_spec.ArraySpec((5,), np.float32)
    draws = python.RandomInference(spec, info, 500, seed=7).act(time_step(500))
    again = python.RandomInference(spec, info, 500, seed=7).act(time_step(500))

    assert set(draws.action["discrete"]) == {1, 2, 3}
    assert draws.action["discrete"].dtype == np.int32
    continuous = draws.action["continuous"]
    assert continuous.dtype == np.float32
    assert (continuous.min(0) >= [-2, 0]).all() and (continuous.max(0) <= [2, 1]).all()
    assert continuous[:, 0].min() < -1.9 and continuous[:, 0].max() > 1.9
    np.testing.assert_array_equal(continuous, again.action["continuous"])
    assert draws.policy_info.shape == (500, 5)


def test_unbounded_actions_are_refused_with_the_way_out():
    with pytest.raises(errors.SpecMismatchError, match="initial_random_steps = 0"):
        python.RandomInference(array_spec.ArraySpec((), np.float32), (), 1)


def test_something_that_is_no_policy_is_refused():
    with pytest.raises(errors.SpecMismatchError, match="dict is not a policy"):
        streams.stream_for({}, 1, batched=True)
