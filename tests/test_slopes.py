"""Slopes and their intervals, against series whose growth is known."""

import numpy as np
import pytest

from benchmarks import slopes, soak


def test_a_straight_line_has_its_slope_and_no_interval():
    found = slopes.slope([0.0, 1.0, 2.0, 3.0], [5.0, 7.0, 9.0, 11.0])
    assert found == pytest.approx((2.0, 2.0, 2.0))
    assert found.times(60.0).value == pytest.approx(120.0)


def test_noise_is_not_taken_for_growth():
    rng = np.random.default_rng(0)
    x = np.arange(120.0)
    wrong = 0
    for _ in range(200):
        # Successive samples of memory are alike: noise of that kind drifts for a while.
        noise = np.zeros(120)
        for index in range(1, 120):
            noise[index] = 0.9 * noise[index - 1] + rng.normal()
        wrong += slopes.slope(x, noise).low > 0.0
    assert wrong <= 20  # Of 200: an exact interval of 95 % errs to this side in 5.


def test_growth_is_found_in_noise():
    rng = np.random.default_rng(0)
    x = np.arange(120.0)
    found = slopes.slope(x, 0.5 * x + rng.normal(size=120))
    assert found.low > 0.45 and found.high < 0.55
    assert found.low < 0.5 < found.high


def test_too_little_to_tell_is_refused():
    with pytest.raises(ValueError, match="three samples at different places"):
        slopes.slope([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="three samples at different places"):
        slopes.slope([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "command, name",
    [
        (["python", "-m", "actor_learner.cli", "up", "--actors=1"], "up"),
        (["python", "-m", "actor_learner.jobs.main", "actor", "--index=0"], "actor"),
        (["python", "-I", "-S", "launch/guardian.py", "-m", "actor_learner.jobs.main"], None),
        (["sh", "-c", "sleep 1"], None),
    ],
)
def test_processes_are_named_after_what_they_run(command, name):
    assert soak._process_name(command) == name
