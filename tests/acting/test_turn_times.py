"""Where an actor's time goes, from one turn in many."""

import pytest

from actor_learner.acting import turn_times


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def take_turn(times, clock, *, stepping, inferring, writing, waiting):
    times.begin_turn()
    for kind, seconds in (
        (turn_times.STEPPING, stepping),
        (turn_times.INFERRING, inferring),
        (turn_times.WRITING, writing),
    ):

        def spend(seconds=seconds):
            clock.now += seconds

        (times.around(kind, spend) if times.is_timed else spend)()
    times.end_turn()
    clock.now += waiting


def test_shares_add_up_and_are_of_the_time_since_the_last_call():
    clock = Clock()
    times = turn_times.TurnTimes(4, clock=clock)
    assert times.shares() == {}
    for _ in range(8):
        take_turn(times, clock, stepping=3.0, inferring=2.0, writing=1.0, waiting=4.0)
    assert times.shares() == pytest.approx(
        {"stepping": 0.3, "inferring": 0.2, "writing": 0.1, "waiting": 0.4}
    )
    for _ in range(8):
        take_turn(times, clock, stepping=1.0, inferring=0.0, writing=1.0, waiting=0.0)
    assert times.shares() == pytest.approx(
        {"stepping": 0.5, "inferring": 0.0, "writing": 0.5, "waiting": 0.0}
    )


def test_few_turns_are_looked_at_and_not_the_first():
    times = turn_times.TurnTimes(3, clock=Clock())
    looked_at = []
    for _ in range(8):
        times.begin_turn()
        looked_at.append(times.is_timed)
        times.end_turn()
    assert looked_at == [False, True, False, False, True, False, False, True]
    assert not times.is_timed  # Outside of turns.


def test_without_a_look_since_the_last_call_parts_are_as_on_average():
    clock = Clock()
    times = turn_times.TurnTimes(100, clock=clock)
    for _ in range(2):
        take_turn(times, clock, stepping=3.0, inferring=1.0, writing=0.0, waiting=0.0)
    times.shares()
    take_turn(times, clock, stepping=2.0, inferring=2.0, writing=0.0, waiting=4.0)
    assert times.shares() == pytest.approx(
        {"stepping": 0.375, "inferring": 0.125, "writing": 0.0, "waiting": 0.5}
    )


def test_what_raises_is_counted_and_passed_on():
    clock = Clock()
    times = turn_times.TurnTimes(1, clock=clock)
    times.begin_turn()
    times.end_turn()
    times.begin_turn()

    def broken():
        clock.now += 1.0
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        times.around(turn_times.WRITING, broken)()
    times.end_turn()
    assert times.shares()["writing"] == 1.0
