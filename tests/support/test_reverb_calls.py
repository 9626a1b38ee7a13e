"""Calls with a deadline: results, errors and time all come back to the caller."""

import contextlib
import os
import threading

import pytest
import reverb

from actor_learner.support import abandoned_calls, errors, reverb_calls


def test_the_result_of_the_call_is_returned():
    assert reverb_calls.call_with_deadline(lambda: 7, 5, AssertionError) == 7


def test_what_the_call_raises_is_raised():
    def fail():
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        reverb_calls.call_with_deadline(fail, 5, AssertionError)


def test_a_call_that_does_not_return_raises_the_callers_error():
    def abandoned():
        return {t for t in threading.enumerate() if t.name == abandoned_calls.NAME}

    others = abandoned()  # Of servers that tests in the same process have stopped.
    release = threading.Event()
    with pytest.raises(errors.ReplayTimeoutError, match="too long"):
        reverb_calls.call_with_deadline(
            release.wait, 0.05, lambda: errors.ReplayTimeoutError("too long")
        )
    # By this name the program of a job knows that there are such calls.
    (left,) = abandoned() - others
    release.set()
    left.join(60)
    # Those that have returned, or wait for something to do, are none of them.
    assert reverb_calls.call_with_deadline(lambda: 3, 60, AssertionError) == 3
    assert abandoned() <= others


def test_calls_share_a_thread_and_one_that_hangs_keeps_its_own():
    hangs, begun, release = [], threading.Event(), threading.Event()

    def hang():
        hangs.append(threading.get_ident())
        begun.set()
        release.wait(60)

    def call():
        return reverb_calls.call_with_deadline(threading.get_ident, 60, AssertionError)

    first, second = call(), call()
    with pytest.raises(TimeoutError):
        reverb_calls.call_with_deadline(hang, 0.05, TimeoutError)
    assert begun.wait(60)
    third = call()
    release.set()
    assert first == second == hangs[0] != third


def test_a_forked_process_calls_with_threads_of_its_own():
    reverb_calls.call_with_deadline(lambda: None, 5, AssertionError)
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):  # A second pytest must not go on from here.
            code = reverb_calls.call_with_deadline(lambda: 7, 60, AssertionError)
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_tables_of_an_absent_server_are_an_error_in_our_words():
    with pytest.raises(errors.ReplayTimeoutError, match="localhost:1 within 0.5 s"):
        reverb_calls.fetch_tables(reverb.Client("localhost:1"), 0.5)


def test_whoever_has_no_time_does_not_wait_for_the_tables_of_an_absent_server():
    with reverb_calls.giving_up_when(lambda: True):
        with pytest.raises(errors.ReplayTimeoutError, match="localhost:1 within 100000 s"):
            reverb_calls.fetch_tables(reverb.Client("localhost:1"), 100_000)


def test_an_unknown_table_is_a_key_error_that_lists_the_others():
    table = reverb.Table.queue("queue", 1)
    server = reverb.Server([table])
    with pytest.raises(KeyError) as caught:
        reverb_calls.fetch_table(server.localhost_client(), "absent", 5)
    server.stop()

    assert str(caught.value).endswith("has no table 'absent'; it has 'queue'")


def busy(times):
    """A call that has no time for so many slices; notes how much it was given."""
    given = []

    def call(timeout_ms):
        given.append(timeout_ms)
        if len(given) <= times:
            raise reverb.errors.DeadlineExceededError("not yet")

    return call, given


def test_a_wait_in_slices_goes_on_until_the_call_succeeds():
    call, given = busy(3)
    reverb_calls.wait_in_slices(call, 60.0)
    assert given == [500] * 4


def test_a_wait_in_slices_ends_with_its_time():
    call, given = busy(10**9)
    with pytest.raises(reverb.errors.DeadlineExceededError):
        reverb_calls.wait_in_slices(call, 0.2)
    assert len(given) == 1 and given[0] <= 200


def test_a_wait_in_slices_is_cut_short_when_its_process_has_no_time():
    call, given = busy(10**9)
    with reverb_calls.giving_up_when(lambda: len(given) == 2):
        with pytest.raises(reverb.errors.DeadlineExceededError):
            reverb_calls.wait_in_slices(call, 60.0)
    assert len(given) == 2
    call, given = busy(2)
    reverb_calls.wait_in_slices(call, 60.0)  # The condition counts no more.
    assert len(given) == 3
