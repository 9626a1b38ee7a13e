import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.environments import batched_py_environment, py_environment, tf_py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import lanes, suite_gymnasium
from actor_learner.environments.gymnasium import GymnasiumEnvironment
from actor_learner.support import errors
from tests import counting_environment

Move = collections.namedtuple("Move", ["dx", "dy"])


class NestedEnv(py_environment.PyEnvironment):
    """Nested specs, sloppy dtypes, and one buffer for all observations."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self.actions = []
        self._buffer = np.zeros(2, np.float64)

    def observation_spec(self):
        return {
            "position": array_spec.ArraySpec((2,), np.float32),
            "more": [array_spec.ArraySpec((), np.int64)],
        }

    def action_spec(self):
        return Move(
            array_spec.BoundedArraySpec((), np.int32, 0, 3),
            array_spec.BoundedArraySpec((2,), np.float32, 0.0, 1.0),
        )

    def get_info(self):
        return "info"

    def close(self):
        self.actions.append("closed")

    def _reset(self):
        self._buffer[:] = 0.0
        return ts.TimeStep(ts.StepType.FIRST, 0, 1, {"position": self._buffer, "more": [0]})

    def _step(self, action):
        self.actions.append(action)
        self._buffer += 1.0
        return ts.TimeStep(ts.StepType.MID, 0.5, 1, {"position": self._buffer, "more": [7]})


def test_a_batched_environment_is_driven_as_it_is():
    env = GymnasiumEnvironment("CountingEnv-v0", 3)
    driven = lanes.as_lanes(env)

    assert (driven.num_lanes, driven.batched, driven.env) == (3, True, env)
    assert driven.step == env.step
    assert driven.reset().observation.tolist() == [[0.0, 0.0]] * 3
    assert driven.step(np.zeros(3, np.int64)).reward.tolist() == [1.0] * 3
    assert driven.get_info()["step"].tolist() == [1, 1, 1]
    assert driven.time_step_spec() == env.time_step_spec()
    assert driven.action_spec() == env.action_spec()
    driven.close()
    with pytest.raises(errors.EnvironmentError):
        driven.reset()


def test_tf_agents_batched_environments_are_driven():
    env = batched_py_environment.BatchedPyEnvironment(
        [suite_gymnasium.load("CountingEnv-v0") for _ in range(2)]
    )
    driven = lanes.as_lanes(env)
    driven.reset()

    assert driven.num_lanes == 2
    assert driven.step(np.zeros(2, np.int64)).observation.tolist() == [[0.0, 1.0]] * 2


def test_an_unbatched_environment_gets_one_lane_with_the_specs_dtypes():
    env = NestedEnv()
    driven = lanes.as_lanes(env)

    driven.reset()
    time_step = driven.step(Move(np.array([2], np.int32), np.array([[0.25, 0.5]], np.float32)))

    assert (driven.num_lanes, driven.batched) == (1, False)
    assert isinstance(time_step, ts.TimeStep)
    described = tf.nest.map_structure(lambda x: (x.shape, x.dtype.name), time_step)
    assert described.step_type == ((1,), "int32")
    assert described.reward == ((1,), "float32")
    assert described.discount == ((1,), "float32")
    assert described.observation == {
        "position": ((1, 2), "float32"),
        "more": [((1,), "int64")],
    }
    assert time_step.reward.tolist() == [0.5]
    assert time_step.observation["position"].tolist() == [[1.0, 1.0]]
    (action,) = env.actions
    assert isinstance(action, Move)
    assert (action.dx.shape, int(action.dx)) == ((), 2)
    assert action.dy.tolist() == [0.25, 0.5]


def test_time_steps_of_one_lane_outlive_the_environments_buffer():
    driven = lanes.as_lanes(NestedEnv())
    first = driven.reset()
    driven.step(Move(np.zeros(1, np.int32), np.zeros((1, 2), np.float32)))

    assert first.observation["position"].tolist() == [[0.0, 0.0]]


def test_one_lane_forwards_specs_info_and_close():
    env = NestedEnv()
    driven = lanes.as_lanes(env)

    assert driven.time_step_spec() == env.time_step_spec()
    assert driven.action_spec() == env.action_spec()
    assert driven.get_info() == "info"
    driven.close()
    assert env.actions == ["closed"]


def test_one_lane_refuses_actions_without_the_leading_dimension():
    driven = lanes.as_lanes(suite_gymnasium.load("CountingEnv-v0"))
    driven.reset()

    with pytest.raises(errors.SpecMismatchError, match=r"shape \(\), one lane expects \(1,\)"):
        driven.step(np.int64(0))


def test_lanes_of_lanes_are_the_same():
    driven = lanes.as_lanes(NestedEnv())

    assert lanes.as_lanes(driven) is driven


@pytest.mark.parametrize(
    "make, hint",
    [
        (lambda: tf_py_environment.TFPyEnvironment(NestedEnv()), r"env\.pyenv"),
        (counting_environment.CountingEnv, r"suite_gymnasium\.wrap_env"),
        (lambda: "CartPole-v1", r"GymnasiumEnvironment\('CartPole-v1'\)"),
        (lambda: 3, "builtins.int cannot be driven"),
    ],
)
def test_anything_else_is_refused_with_a_hint(make, hint):
    with pytest.raises(errors.SpecMismatchError, match=hint):
        lanes.as_lanes(make())
