import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from tf_agents.environments import utils
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import gymnasium_wrapper
from actor_learner.support import errors
from tests import counting_environment
from tests.environments import sample_environments

F, M, L = 0, 1, 2


def _rows(env, num_steps):
    action = np.zeros((), np.int64)
    time_steps = [env.reset(), *(env.step(action) for _ in range(num_steps))]
    return [
        (
            t.observation.tolist(),
            float(t.reward),
            int(t.step_type),
            pytest.approx(float(t.discount)),
        )
        for t in time_steps
    ]


def test_episodes_follow_one_another_and_only_termination_ends_the_discount():
    env = gymnasium_wrapper.GymnasiumWrapper(
        counting_environment.CountingEnv((2, 1, 1), ("terminated", "truncated", "both"))
    )

    assert _rows(env, 7) == [
        ([0, 0], 0.0, F, 1.0),
        ([0, 1], 1.0, M, 1.0),
        ([0, 2], 2.0, L, 0.0),
        ([1, 0], 0.0, F, 1.0),
        ([1, 1], 1.0, L, 1.0),
        ([2, 0], 0.0, F, 1.0),
        ([2, 1], 1.0, L, 0.0),
        ([3, 0], 0.0, F, 1.0),
    ]


def test_the_discount_applies_to_mid_and_truncated_steps():
    env = gymnasium_wrapper.GymnasiumWrapper(
        counting_environment.CountingEnv((2,), ("truncated",)), discount=0.5
    )

    assert [row[3] for row in _rows(env, 3)] == [1.0, 0.5, 0.5, 1.0]


def test_without_auto_reset_the_step_after_last_reaches_the_environment():
    env = gymnasium_wrapper.GymnasiumWrapper(
        counting_environment.CountingEnv((1,)), auto_reset=False
    )
    env.reset()
    env.step(0)

    assert env.done
    with pytest.raises(RuntimeError, match="without reset"):
        env.step(0)


def test_tf_agents_own_validation_accepts_it():
    utils.validate_py_environment(
        gymnasium_wrapper.GymnasiumWrapper(gymnasium.make("CartPole-v1")), episodes=3
    )


def test_all_six_kinds_of_space_match_the_specs_and_start_is_added():
    inner = sample_environments.AllSpacesEnv()
    env = gymnasium_wrapper.GymnasiumWrapper(inner)
    env.reset()

    time_step = env.step(
        tf.nest.map_structure(lambda spec: np.zeros(spec.shape, spec.dtype), env.action_spec())
    )

    assert inner.actions[0]["discrete"] == 5
    assert inner.actions[0]["multi_discrete"].tolist() == [-1, 10]
    tf.nest.map_structure(
        lambda spec, value: np.testing.assert_(spec.check_array(value), (spec, value)),
        env.time_step_spec(),
        time_step,
    )


def test_spec_dtype_map_changes_specs_and_observations():
    env = gymnasium_wrapper.GymnasiumWrapper(
        counting_environment.CountingEnv(),
        spec_dtype_map={spaces.Box: np.float64, spaces.Discrete: np.int32},
    )

    assert env.observation_spec().dtype == np.float64
    assert env.action_spec().dtype == np.int32
    assert env.reset().observation.dtype == np.float64
    assert env.step(np.array(1, np.int32)).observation.tolist() == [0.0, 1.0]


def test_observations_keep_their_own_dtype_if_asked_to():
    env = gymnasium_wrapper.GymnasiumWrapper(
        counting_environment.CountingEnv(),
        spec_dtype_map={spaces.Box: np.float64},
        match_obs_space_dtype=False,
    )

    assert env.reset().observation.dtype == np.float32


def test_box_bounds_are_simplified_unless_asked_not_to():
    shapes = [
        gymnasium_wrapper.GymnasiumWrapper(
            counting_environment.CountingEnv(), simplify_box_bounds=simplify
        )
        .observation_spec()
        .minimum.shape
        for simplify in (True, False)
    ]

    assert shapes == [(), (2,)]


def test_a_seed_holds_for_the_next_reset_only():
    env = gymnasium_wrapper.GymnasiumWrapper(gymnasium.make("CartPole-v1"))
    env.seed(3)
    first, second = env.reset().observation, env.reset().observation
    env.seed(3)

    np.testing.assert_array_equal(env.reset().observation, first)
    assert not np.array_equal(first, second)


def test_info_and_attributes_of_the_environment_are_reachable():
    env = gymnasium_wrapper.GymnasiumWrapper(gymnasium.make("CountingEnv-v0"))
    assert env.get_info() is None
    env.reset()
    env.step(0)

    assert env.get_info() == {"episode": 0, "step": 1}
    assert env.actions == [0]
    assert isinstance(env.gym.unwrapped, counting_environment.CountingEnv)
    with pytest.raises(AttributeError):
        env.no_such_attribute  # noqa: B018


def test_time_steps_are_never_written_again():
    class Reusing(counting_environment.CountingEnv):
        buffer = np.zeros(2, np.float32)

        def _observation(self):
            self.buffer[:] = super()._observation()
            return self.buffer

    env = gymnasium_wrapper.GymnasiumWrapper(Reusing())
    first = env.reset()
    env.step(0)

    assert first.observation.tolist() == [0.0, 0.0]
    assert isinstance(first, ts.TimeStep)


def test_render_gives_frames_of_the_mode_the_environment_was_made_with():
    env = gymnasium_wrapper.GymnasiumWrapper(
        gymnasium.make("CountingEnv-v0", render_mode="rgb_array")
    )
    env.reset()
    env.step(0)

    assert np.all(env.render() == 1)
    with pytest.raises(errors.ConfigError, match="render_mode='rgb_array'"):
        env.render("human")


def test_render_kwargs_reach_the_environments_own_render():
    class Sized(counting_environment.CountingEnv):
        def render(self, size=8):
            return np.zeros((size, size, 3), np.uint8)

    inner = gymnasium.wrappers.OrderEnforcing(Sized(render_mode="rgb_array"))
    env = gymnasium_wrapper.GymnasiumWrapper(inner, render_kwargs={"size": 5})
    env.reset()

    assert env.render().shape == (5, 5, 3)

    wrong = gymnasium_wrapper.GymnasiumWrapper(inner, render_kwargs={"colour": 1})
    with pytest.raises(errors.ConfigError, match="render_kwargs {'colour': 1}"):
        wrong.render()


def test_unsupported_spaces_are_refused():
    env = counting_environment.CountingEnv(action_space=spaces.Text(3))

    with pytest.raises(errors.SpecMismatchError, match="action is Text"):
        gymnasium_wrapper.GymnasiumWrapper(env)
