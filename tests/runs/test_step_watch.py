"""A slow environment is told from one that hangs."""

from actor_learner.runs import step_watch


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.seconds = 1_000.0

    def __call__(self):
        return self.seconds


def test_a_step_within_the_timeout_is_never_overdue():
    clock = Clock()
    watch = step_watch.StepWatch(60.0, clock)
    watch.begin_turn()
    since = watch.now()
    clock.seconds += 60.0
    assert watch.overdue_seconds(since) is None
    clock.seconds += 1.0
    assert watch.overdue_seconds(since) == 61.0
    watch(None)
    assert watch.overdue_seconds(since) is None


def test_an_environment_whose_steps_are_long_is_given_more_time():
    clock = Clock()
    watch = step_watch.StepWatch(60.0, clock)
    watch.begin_turn()
    since = watch.now()
    for seconds in (20.0, 1.0, 30.0, 2.0):
        clock.seconds += seconds
        watch(None)
    assert watch.longest_seconds == 30.0
    clock.seconds += 300.0
    assert watch.overdue_seconds(since) is None
    clock.seconds += 1.0
    assert watch.overdue_seconds(since) == 301.0


def test_only_the_time_in_a_turn_and_in_which_somebody_waits_counts():
    clock = Clock()
    watch = step_watch.StepWatch(60.0, clock)
    watch.begin_turn()
    clock.seconds += 500.0  # The learner trains meanwhile, and does not wait.
    assert watch.overdue_seconds(watch.now()) is None
    watch(None)
    assert watch.longest_seconds == 500.0

    watch = step_watch.StepWatch(60.0, clock)
    since = watch.now()
    clock.seconds += 500.0  # Nothing was to be collected.
    watch.begin_turn()
    assert watch.overdue_seconds(since) is None
    clock.seconds += 1.0
    watch(None)
    assert watch.longest_seconds == 1.0
