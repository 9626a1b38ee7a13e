import pytest

from actor_learner.launch import restarts
from actor_learner.support import errors


def history(**changes):
    return restarts.RestartHistory(
        restarts.RestartPolicy(
            **{"max_restarts": 4, "window_seconds": 100.0, "healthy_seconds": 50.0,
               "first_delay": 1.0, "max_delay": 5.0, **changes}
        )
    )  # fmt: skip


def test_delays_double_up_to_the_longest_and_the_cap_ends_it():
    job = history()
    delays = [job.next_delay(now, ran_seconds=0.1) for now in range(5)]
    assert delays == [1.0, 2.0, 4.0, 5.0, None]
    assert (job.total, job.in_a_row) == (4, 4)


def test_restarts_that_left_the_window_do_not_count():
    job = history(max_restarts=2)
    assert [job.next_delay(now, 0.1) for now in (0.0, 60.0)] == [1.0, 2.0]
    assert job.next_delay(99.0, 0.1) is None
    assert job.next_delay(100.0, 0.1) == 2.0  # The first has left, the second still counts.
    assert job.total == 3


def test_a_job_that_ran_healthily_begins_anew():
    job = history(max_restarts=2)
    assert [job.next_delay(now, 0.1) for now in (0.0, 1.0)] == [1.0, 2.0]
    assert job.next_delay(51.0, ran_seconds=50.0) == 1.0
    assert (job.total, job.in_a_row) == (3, 1)


def test_a_policy_without_restarts_gives_up_at_once():
    assert history(max_restarts=0).next_delay(0.0, 1_000.0) is None


def test_a_negative_policy_is_refused():
    with pytest.raises(errors.ConfigError, match="negative"):
        restarts.RestartPolicy(max_restarts=-1)
