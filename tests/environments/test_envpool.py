import sys

import numpy as np
import pytest

from actor_learner.environments.gymnasium import GymnasiumEnvironment
from actor_learner.support import errors

F, M, L = 0, 1, 2


def test_without_envpool_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)

    with pytest.raises(errors.MissingExtraError) as caught:
        GymnasiumEnvironment("CartPole-v1", 2, vectorization="envpool")

    assert "-m pip install -e '.[envpool]'" in str(caught.value)


def test_gymnasium_wrappers_and_callables_are_refused():
    with pytest.raises(errors.ConfigError, match="cannot apply Gymnasium wrappers"):
        GymnasiumEnvironment("CartPole-v1", vectorization="envpool", wrappers=["TimeLimit"])
    with pytest.raises(errors.ConfigError, match="name of an EnvPool task"):
        GymnasiumEnvironment(lambda: None, vectorization="envpool")


def test_a_time_limit_gives_last_with_discount_one_then_first():
    pytest.importorskip("envpool")
    with GymnasiumEnvironment(
        "CartPole-v1", 3, vectorization="envpool", max_episode_steps=3, seed=0
    ) as env:
        time_steps = [env.reset(), *(env.step(np.zeros(3, np.int64)) for _ in range(5))]

    assert [t.step_type.tolist() for t in time_steps] == [[kind] * 3 for kind in (F, M, M, L, F, M)]
    assert [t.discount.tolist() for t in time_steps] == [[1.0] * 3] * 6
    assert [t.reward.tolist() for t in time_steps] == [
        [reward] * 3 for reward in (0.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    ]
    assert np.all(np.abs(time_steps[4].observation) <= 0.05)
    assert np.any(np.abs(time_steps[3].observation) > 0.05)


def test_termination_gives_discount_zero():
    pytest.importorskip("envpool")
    with GymnasiumEnvironment("CartPole-v1", 2, vectorization="envpool", seed=0) as env:
        env.reset()
        time_steps = [env.step(np.zeros(2, np.int64)) for _ in range(30)]

    last = np.stack([t.step_type for t in time_steps]) == L
    assert last.any(axis=0).all()
    np.testing.assert_array_equal(np.stack([t.discount for t in time_steps]) == 0.0, last)


def test_lanes_have_seeds_of_their_own_that_reproduce():
    pytest.importorskip("envpool")
    with GymnasiumEnvironment("CartPole-v1", 3, vectorization="envpool", seed=7) as env:
        first = env.reset().observation
        unseeded = env.reset().observation
        env.seed(7)
        again = env.reset().observation

    assert len({tuple(row) for row in first.tolist()}) == 3
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == unseeded)


def test_unknown_tasks_and_options_are_config_errors():
    pytest.importorskip("envpool")
    with pytest.raises(errors.ConfigError, match="CartPol-v1: did you mean .*CartPole-v1"):
        GymnasiumEnvironment("CartPol-v1", vectorization="envpool")
    with pytest.raises(errors.ConfigError, match="gravitas"):
        GymnasiumEnvironment("CartPole-v1", vectorization="envpool", make_kwargs={"gravitas": 1})


def test_continuous_actions_and_frames():
    pytest.importorskip("envpool")
    with GymnasiumEnvironment(
        "Pendulum-v1", 2, vectorization="envpool", make_kwargs={"render_mode": "rgb_array"}
    ) as env:
        env.reset()
        time_step = env.step(np.zeros((2, 1), np.float32))
        frame = env.render()

    assert time_step.observation.shape == (2, 3)
    assert (frame.ndim, frame.shape[-1], frame.dtype) == (3, 3, np.uint8)
