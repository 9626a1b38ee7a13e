"""Tests of `actor_learner.learning.interval_trigger`."""

import pytest

from actor_learner.learning import interval_trigger


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def fired_at(trigger_values, **kwargs):
    fired = []
    trigger = interval_trigger.IntervalTrigger(fn=lambda: fired.append(value), **kwargs)
    for value in trigger_values:
        trigger(value)
    return fired


def test_fires_when_the_interval_has_passed_since_the_last_firing():
    assert fired_at([7, 14, 21, 28, 38], interval=10) == [14, 28, 38]


def test_counts_from_start():
    assert fired_at([14, 15, 24, 25], interval=10, start=5) == [15, 25]


@pytest.mark.parametrize("interval", [0, -1, None])
def test_without_interval_and_seconds_it_never_fires_even_if_forced(interval):
    fired = []
    trigger = interval_trigger.IntervalTrigger(interval, lambda: fired.append(1))
    trigger(1000)
    trigger(2000, force_trigger=True)
    assert fired == []


def test_force_fires_unless_it_fired_at_this_value():
    fired = []
    trigger = interval_trigger.IntervalTrigger(10, lambda: fired.append(1))
    trigger(3, force_trigger=True)
    trigger(3, force_trigger=True)
    assert len(fired) == 1
    trigger(12)
    assert len(fired) == 1, "the forced firing at 3 must restart the interval"
    trigger(13)
    assert len(fired) == 2


def test_reset_counts_from_the_original_start_and_set_start_from_another():
    fired = []
    trigger = interval_trigger.IntervalTrigger(10, lambda: fired.append(1), start=5)
    trigger.set_start(50)
    trigger(59)
    assert not fired
    trigger.reset()
    trigger(15)
    assert len(fired) == 1


@pytest.mark.parametrize("interval", [None, 0])
def test_fires_by_seconds_alone(interval):
    clock, fired = Clock(), []
    trigger = interval_trigger.IntervalTrigger(
        interval, lambda: fired.append(clock.now), seconds=30, clock=clock
    )
    for value, clock.now in enumerate([129.9, 130.0, 159.0, 160.5, 190.0]):
        trigger(value)
    assert fired == [130.0, 160.5]


def test_a_firing_by_steps_restarts_the_seconds_and_the_other_way_round():
    clock, fired = Clock(), []
    trigger = interval_trigger.IntervalTrigger(
        10, lambda: fired.append((value, clock.now)), seconds=30, clock=clock
    )
    for value, now in [(10, 120.0), (15, 140.0), (16, 150.0), (25, 160.0), (26, 161.0)]:
        clock.now = now
        trigger(value)
    # 10 by steps; 140 is only 20 s later; 150 by seconds; 25 is 9 steps later; 26 by steps.
    assert fired == [(10, 120.0), (16, 150.0), (26, 161.0)]


def test_set_start_restarts_the_seconds():
    clock, fired = Clock(), []
    trigger = interval_trigger.IntervalTrigger(
        None, lambda: fired.append(1), seconds=30, clock=clock
    )
    clock.now = 500.0
    trigger.set_start(0)
    trigger(1)
    assert fired == []


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_refuses_seconds_that_are_not_positive(seconds):
    with pytest.raises(ValueError, match="must be positive"):
        interval_trigger.IntervalTrigger(10, lambda: None, seconds=seconds)


def test_steps_to_the_next_firing_are_known():
    trigger = interval_trigger.IntervalTrigger(10, lambda: None, start=3)
    assert [trigger.steps_left(value) for value in (3, 12, 13, 20)] == [10, 1, 0, 0]
    trigger(15)
    assert trigger.steps_left(16) == 9
    assert interval_trigger.IntervalTrigger(None, lambda: None, seconds=1.0).steps_left(5) is None
