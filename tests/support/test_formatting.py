import math

import pytest

from actor_learner.support import formatting


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0.0/s"),
        (9.54, "9.5/s"),
        (99.6, "100/s"),
        (640.2, "640/s"),
        (999.4, "999/s"),
        (999.6, "1.0k/s"),
        (1234.5, "1.2k/s"),
        (252_000, "252k/s"),
        (999_700, "1.0M/s"),
        (3_400_000, "3.4M/s"),
        (2.5e9, "2.5G/s"),
    ],
)
def test_rates(value, text):
    assert formatting.rate(value) == text


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0.00"),
        (0.012345, "0.0123"),
        (1.2e-7, "1.2e-07"),
        (21.567, "21.57"),
        (-187.25, "-187.2"),
        (12345.6, "12,346"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_numbers(value, text):
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (-3, "0:00"),
        (7.4, "0:07"),
        (59.6, "1:00"),
        (754, "12:34"),
        (3723, "1:02:03"),
        (183845, "2d 03:04:05"),
    ],
)
def test_durations(seconds, text):
    assert formatting.duration(seconds) == text


def test_counts_and_means():
    assert formatting.count(12345) == "12,345"
    assert formatting.mean_and_std(487.25, 12.14) == "487.2 ± 12.1"
    assert formatting.mean_and_std(0.735, 0.4411) == "0.73 ± 0.44"
    assert formatting.mean_and_std(-1487.3) == "-1,487.3"
