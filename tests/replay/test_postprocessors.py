"""Returns and advantages of episodes, against their definitions."""

import numpy as np
import pytest
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.replay import postprocessors
from actor_learner.support import errors

GAMMA, STEPS = 0.9, 7


def episode(terminated, info=True):
    random = np.random.default_rng(3)
    discount = np.ones(STEPS + 1, np.float32)
    discount[2] = 0.5  # Environments may have discounts of their own.
    discount[STEPS - 1] = 0.0 if terminated else 1.0
    kinds = np.array([0] + [1] * (STEPS - 1) + [2], np.int32)
    values = random.normal(size=STEPS + 1).astype(np.float32)
    return trajectory_lib.Trajectory(
        step_type=kinds,
        observation=random.normal(size=(STEPS + 1, 3)).astype(np.float32),
        action=np.arange(STEPS + 1),
        policy_info={"value": values} if info else (),
        next_step_type=np.append(kinds[1:], 0).astype(np.int32),
        reward=random.normal(size=STEPS + 1).astype(np.float32),
        discount=discount,
    )


def forward(made, start, end, last_value):
    """The discounted rewards of steps `start` to `end - 1`, and a value behind them."""
    total, factor = 0.0, 1.0
    for step in range(start, end):
        total += factor * made.reward[step]
        factor *= GAMMA * made.discount[step]
    return total + factor * last_value


@pytest.mark.parametrize("terminated", [True, False])
def test_the_return_is_the_discounted_sum_up_to_the_end(terminated):
    made = episode(terminated)
    for name in (None, "value"):
        last = 0.0 if name is None else made.policy_info["value"][-1]
        done = postprocessors.discounted_return(made, gamma=GAMMA, value=name)
        expected = [forward(made, step, STEPS, last) for step in range(STEPS)]
        np.testing.assert_allclose(done.policy_info["return"], [*expected, 0.0], rtol=1e-5)
        np.testing.assert_array_equal(done.policy_info["value"], made.policy_info["value"])
        np.testing.assert_array_equal(done.reward, made.reward)


def test_the_return_may_take_the_place_of_the_reward():
    made = episode(True, info=False)
    done = postprocessors.discounted_return(made, gamma=GAMMA, into="reward")
    expected = [forward(made, step, STEPS, 0.0) for step in range(STEPS)]
    np.testing.assert_allclose(done.reward, [*expected, 0.0], rtol=1e-5)
    assert not done.discount.any()
    assert done.policy_info == ()


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("n", [1, 3, 20])
def test_n_step_returns_have_the_value_of_what_follows(terminated, n):
    made = episode(terminated)
    done = postprocessors.n_step_return(made, n=n, gamma=GAMMA)
    values = made.policy_info["value"]
    ends = [min(step + n, STEPS) for step in range(STEPS)]
    expected = [forward(made, step, end, values[end]) for step, end in enumerate(ends)]
    np.testing.assert_allclose(done.policy_info["n_step_return"], [*expected, 0.0], rtol=1e-5)


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_advantages_are_a_mixture_of_n_step_returns(terminated, lambda_):
    made = episode(terminated)
    done = postprocessors.gae(made, gamma=GAMMA, lambda_=lambda_)
    values = made.policy_info["value"]
    for step in range(STEPS):
        left = STEPS - step
        # (1 - λ) Σ λ^(n-1) G_n, all of what is left to the longest.
        weights = [(1 - lambda_) * lambda_ ** (n - 1) for n in range(1, left)]
        weights.append(lambda_ ** (left - 1))
        returns = [forward(made, step, step + n, values[step + n]) for n in range(1, left + 1)]
        expected = np.dot(weights, returns)
        found = done.policy_info
        np.testing.assert_allclose(found["return"][step], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            found["advantage"][step], expected - values[step], rtol=1e-4, atol=1e-5
        )
    assert (found["advantage"][-1], found["return"][-1]) == (0.0, 0.0)


@pytest.mark.parametrize("info", [True, False])
def test_values_that_are_not_there_are_asked_for_by_name(info):
    with pytest.raises(errors.ConfigError, match=r"policy_info\['q_best'\]"):
        postprocessors.gae(episode(True, info), value="q_best")


def test_n_step_returns_have_a_step_at_least():
    with pytest.raises(errors.ConfigError, match="1 or more, got 0"):
        postprocessors.n_step_return(episode(True), n=0)
