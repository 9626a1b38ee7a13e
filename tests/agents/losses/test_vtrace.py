"""V-trace against its definition as a sum, in plain NumPy."""

import numpy as np
import pytest

from actor_learner.agents.losses import vtrace

FIRST, MID, LAST = 0, 1, 2


def random_unroll(batch, length, seed, end_probability=0.25):
    """Random rows in which episodes terminate and are truncated."""
    generator = np.random.default_rng(seed)
    step_type = np.full((batch, length + 1), MID, np.int32)
    discount = np.ones((batch, length), np.float32)
    for lane in range(batch):
        t = 0
        while t < length:
            if generator.random() < end_probability:  # The step of row t ends the episode.
                step_type[lane, t + 1] = LAST
                discount[lane, t] = generator.integers(0, 2)
                if t + 2 <= length:
                    step_type[lane, t + 2] = FIRST
                t += 1  # Row t + 1 is a boundary step.
            t += 1
    return {
        "behaviour_log_probability": generator.normal(size=(batch, length)) * 0.7,
        "target_log_probability": generator.normal(size=(batch, length)) * 0.7,
        "step_type": step_type[:, :-1],
        "reward": generator.normal(size=(batch, length)) * 3.0,
        "discount": 0.97 * discount,
        "value": generator.normal(size=(batch, length + 1)) * 3.0,
    }


def reference(rows, rho_bar, c_bar, trace_lambda):
    """`v_s = V_s + sum_t prod_{s <= i < t} (d_i c_i) delta_t` over the steps of s's episode."""
    batch, length = rows["reward"].shape
    reward, discount, value = rows["reward"], rows["discount"], rows["value"]
    ratio = np.exp(rows["target_log_probability"] - rows["behaviour_log_probability"])
    rho, c = np.minimum(ratio, rho_bar), trace_lambda * np.minimum(ratio, c_bar)
    targets = value.copy()
    for lane in range(batch):
        for start in range(length):
            factor = 1.0
            for t in range(start, length):
                if rows["step_type"][lane, t] == LAST:
                    break  # A boundary row: the episode ended with the row before.
                delta = reward[lane, t] + discount[lane, t] * value[lane, t + 1] - value[lane, t]
                targets[lane, start] += factor * rho[lane, t] * delta
                factor *= discount[lane, t] * c[lane, t]
    mask = rows["step_type"] != LAST
    advantage = mask * rho * (reward + discount * targets[:, 1:] - value[:, :-1])
    return targets[:, :-1], advantage, ratio, mask


def run(rows, **options):
    return vtrace.vtrace(**{k: v.astype(v.dtype if k == "step_type" else np.float32)
                            for k, v in rows.items()}, **options)  # fmt: skip


@pytest.mark.parametrize("length", [1, 2, 7, 20, 33])
@pytest.mark.parametrize(
    "options",
    [
        {"rho_bar": 1.0, "c_bar": 1.0, "trace_lambda": 1.0},
        {"rho_bar": 2.5, "c_bar": 1.3, "trace_lambda": 0.9},
        {"rho_bar": 0.5, "c_bar": 0.7, "trace_lambda": 0.0},
    ],
    ids=str,
)
def test_vtrace_equals_its_definition_with_episodes_that_end_inside(length, options):
    rows = random_unroll(batch=16, length=length, seed=length)
    if length > 2:
        ends = rows["step_type"] == LAST
        before = np.roll(ends, -1, axis=1)[:, :-1]
        assert {0.0} < set(rows["discount"][:, :-1][before].round(2)), "both kinds of ends"
    found = run(rows, **options)
    for leaf, expected in zip(found, reference(rows, **options)):
        np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-5)


def test_with_on_policy_data_the_targets_are_lambda_returns():
    rows = random_unroll(batch=16, length=12, seed=3)
    rows["target_log_probability"] = rows["behaviour_log_probability"]
    trace_lambda = 0.8
    value = rows["value"]
    returns = value.copy()
    for t in reversed(range(12)):
        # At a boundary row the return is the value: it is where the episode's last step arrives.
        arrives = (1 - trace_lambda) * value[:, t + 1] + trace_lambda * returns[:, t + 1]
        step = rows["reward"][:, t] + rows["discount"][:, t] * arrives
        returns[:, t] = np.where(rows["step_type"][:, t] == LAST, value[:, t], step)
    found = run(rows, trace_lambda=trace_lambda)
    np.testing.assert_allclose(found.value_target, returns[:, :-1], rtol=1e-5, atol=1e-5)


def test_with_on_policy_data_and_no_end_the_target_is_the_n_step_return():
    rows = random_unroll(batch=4, length=5, seed=1, end_probability=0.0)
    rows["target_log_probability"] = rows["behaviour_log_probability"]
    powers = 0.97 ** np.arange(6)
    expected = rows["reward"] @ powers[:5] + powers[5] * rows["value"][:, 5]
    np.testing.assert_allclose(run(rows).value_target[:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("discount, expected", [(0.0, 2.0), (1.0, 2.0 + 0.9 * 10.0)])
def test_a_truncated_episode_bootstraps_from_its_final_observation(discount, expected):
    # Row 1 holds the final observation, worth 10; row 2 belongs to the next episode.
    found = vtrace.vtrace(
        behaviour_log_probability=np.zeros((1, 3), np.float32),
        target_log_probability=np.zeros((1, 3), np.float32),
        step_type=np.array([[MID, LAST, FIRST]], np.int32),
        reward=np.array([[2.0, 77.0, 5.0]], np.float32),
        discount=np.array([[0.9 * discount, 0.9, 0.9]], np.float32),
        value=np.array([[1.0, 10.0, 100.0, 1000.0]], np.float32),
    )
    np.testing.assert_allclose(found.value_target, [[expected, 10.0, 905.0]], rtol=1e-6)
    np.testing.assert_allclose(found.advantage, [[expected - 1.0, 0.0, 805.0]], rtol=1e-6)
    np.testing.assert_array_equal(found.mask, [[1, 0, 1]])
