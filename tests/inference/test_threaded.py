"""Inference for several groups: at once, or on a thread of its own."""

import contextlib
import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.acting import actor
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.inference import inline, lite, one_group, protocol, threaded
from actor_learner.support import errors
from tests import counting_environment
from tests.inference import policies, serving

OBSERVATION = policies.OBSERVATIONS["vector"]


class Scripted:
    """Answers with what it is given; waits before each answer until it may."""

    def __init__(self):
        self.may_answer = threading.Semaphore(0)
        self.began = threading.Event()
        self.threads, self.resets, self.refreshed = set(), 0, []

    def reset(self):
        self.resets += 1

    def refresh(self, version=None, epoch=0, *, certain=False):
        self.refreshed.append((version, epoch, certain))

    def act(self, time_step):
        self.threads.add(threading.current_thread())
        self.began.set()
        assert self.may_answer.acquire(timeout=30)
        if isinstance(time_step, Exception):
            raise time_step
        return protocol.Response(time_step)


@pytest.fixture
def groups():
    return [Scripted(), Scripted()]


@pytest.fixture
def stream(groups):
    made = threaded.ThreadedInference(groups, name="thinker")
    yield made
    for group in groups:
        group.may_answer.release(10)
    made.close()


@contextlib.contextmanager
def hear(*words, then):
    """Calls `then` when the log has all these words in a line; gives an event that says so."""
    heard = threading.Event()

    class Hearing(logging.Handler):
        def emit(self, record):
            if not heard.is_set() and all(each in record.getMessage() for each in words):
                heard.set()
                then()

    handler = Hearing()
    logging.getLogger("absl").addHandler(handler)
    try:
        yield heard
    finally:
        logging.getLogger("absl").removeHandler(handler)


def test_groups_get_their_own_answers_in_any_order(stream, groups):
    tickets = [stream.request(0, "zero"), stream.request(1, "one")]
    for group in groups:
        group.may_answer.release()
    assert stream.result(tickets[1], 30).action == "one"
    assert stream.result(tickets[0], 30).action == "zero"
    (thread,) = groups[0].threads | groups[1].threads
    assert thread is not threading.current_thread() and thread.name == "thinker"


def test_the_caller_goes_on_while_actions_are_computed(stream, groups):
    ticket = stream.request(0, "zero")
    assert groups[0].began.wait(30)  # Under way, and here we are.
    groups[0].may_answer.release()
    assert stream.result(ticket, 30).action == "zero"


def test_an_error_reaches_whoever_waits_and_ends_nothing(stream, groups):
    groups[0].may_answer.release(2)
    ticket = stream.request(0, ZeroDivisionError("of the policy"))
    with pytest.raises(ZeroDivisionError, match="of the policy"):
        stream.result(ticket, 30)
    assert stream.result(stream.request(0, "again"), 30).action == "again"


def test_a_wait_that_takes_too_long_says_who_waits_for_whom_and_the_ticket_stays_good(
    stream, groups
):
    first, second = stream.request(0, "zero"), stream.request(1, "one")
    assert groups[0].began.wait(30)
    with pytest.raises(
        errors.InferenceTimeoutError,
        match=r"group 1 has waited \d+\.\d s.* thread 'thinker', which has been busy with group 0",
    ):
        stream.result(second, 0.01)
    for group in groups:
        group.may_answer.release()
    assert stream.result(second, 30).action == "one"
    assert stream.result(first, 30).action == "zero"


def test_a_long_wait_without_a_deadline_is_heard_of(stream, groups, monkeypatch, caplog):
    monkeypatch.setattr(threaded, "_VOICE_SECONDS", 0.01)
    with hear("Group 0 has waited", then=groups[0].may_answer.release) as heard:
        assert stream.result(stream.request(0, "zero")).action == "zero"
    assert heard.is_set()


def test_a_group_has_one_request_under_way(stream, groups):
    ticket = stream.request(0, "zero")
    with pytest.raises(errors.InferenceError, match="group 0 has a request under way"):
        stream.request(0, "more")
    with pytest.raises(errors.InferenceError, match="group 0 has a request under way"):
        stream.reset(0)
    groups[0].may_answer.release()
    stream.result(ticket, 30)
    with pytest.raises(errors.InferenceError, match="group 0 has not asked"):
        stream.result(ticket, 30)


def test_reset_and_refresh_reach_the_groups(stream, groups):
    stream.reset(1)
    stream.refresh(4, 2, certain=True)
    assert [group.resets for group in groups] == [0, 1]
    assert [group.refreshed for group in groups] == [[(4, 2, True)]] * 2


def test_closing_waits_for_the_thread_and_leaves_nobody_waiting(groups):
    stream = threaded.ThreadedInference(groups)
    stream.request(0, "zero")
    unanswered = stream.request(1, "one")
    assert groups[0].began.wait(30)
    closing = threading.Thread(target=stream.close)
    closing.start()
    serving.wait_for(lambda: stream._closed)  # Before that, the second would be begun, too.
    assert closing.is_alive()  # The first is under way.
    groups[0].may_answer.release()
    closing.join(30)
    assert not closing.is_alive() and not stream._thread.is_alive()
    with pytest.raises(errors.InferenceError, match="nobody will answer"):
        stream.result(unanswered, 0.01)
    assert stream.result(0, 1).action == "zero"  # Answered before the end.
    with pytest.raises(errors.InferenceError, match="has been closed"):
        stream.request(0, "late")
    stream.close()


def test_an_actor_with_one_group_acts_by_a_stream():
    env = gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID, 2, vectorization="sync", make_kwargs={"episode_lengths": (3,)}
    )
    group = Scripted()
    group.may_answer.release(100)
    act = group.act
    group.act = lambda step: act(step)._replace(action=(step.step_type == 0).astype(np.int64))
    stream = threaded.ThreadedInference([group])
    seen = []
    ours = actor.Actor(
        env,
        one_group.OneGroup(stream, timeout_seconds=30.0),
        tf.Variable(6, dtype=tf.int64),
        steps_per_run=8,
        observers=[seen.append],
    )
    ours.run()
    stream.close()
    assert ours.inference == "OneGroup"
    assert group.resets == 1 and group.refreshed == [(6, 0, False)]
    assert [t.action[0] for t in seen] == [1, 0, 0, 0, 1]  # FIRST MID MID LAST FIRST


def test_a_thread_and_the_caller_act_alike():
    """With policies that remember and draw at random, for two groups of unlike sizes."""
    policy = policies.agent_of("ppo memory").collect_policy

    def make():
        return [
            lite.LiteInference(policy, lanes, seed=2, first_lane=first)
            for first, lanes in ((0, 2), (2, 1))
        ]

    direct, second = make(), threaded.ThreadedInference(make())
    at_once = inline.InlineInference(make())
    for stream in (second, at_once):
        stream.refresh(3)
    generator = np.random.default_rng(0)
    for _ in range(20):
        steps = [policies.time_step(generator, OBSERVATION, lanes) for lanes in (2, 1)]
        wanted = [group.act(step) for group, step in zip(direct, steps)]
        for stream in (second, at_once):
            tickets = [stream.request(group, step) for group, step in enumerate(steps)]
            for ticket, expected in zip(tickets, wanted):
                answer = stream.result(ticket, 30)
                assert answer.version == 3
                for leaf, known in zip(policies.flat(answer), policies.flat(expected)):
                    np.testing.assert_array_equal(leaf, known)
    second.close()
    at_once.close()


def test_after_a_timeout_the_one_group_waits_for_the_same_answer(stream, groups):
    group = one_group.OneGroup(stream, timeout_seconds=0.01)
    for _ in range(2):
        with pytest.raises(errors.InferenceTimeoutError):
            group.act("first")
    groups[0].may_answer.release()
    patient = one_group.OneGroup(stream, timeout_seconds=30.0)
    patient._ticket = group._ticket
    assert patient.act("first").action == "first"
    groups[0].may_answer.release()
    assert patient.act("second").action == "second"
    groups[0].may_answer.release(2)
    with pytest.raises(ZeroDivisionError):
        patient.act(ZeroDivisionError())
    assert patient.act("third").action == "third"


def test_a_reset_after_a_timeout_takes_the_answer_that_nobody_waits_for(stream, groups):
    group = one_group.OneGroup(stream, timeout_seconds=0.01)
    with pytest.raises(errors.InferenceTimeoutError):
        group.act("first")
    with pytest.raises(errors.InferenceTimeoutError):
        group.reset()
    group._timeout_seconds = 30.0
    groups[0].may_answer.release(2)
    group.reset()
    assert groups[0].resets == 1
    assert group.act("second").action == "second"


@pytest.mark.parametrize("what", ["A refresh", "A reset of group 1"])
def test_a_refresh_or_reset_that_waits_for_an_inference_is_heard_of(
    stream, groups, monkeypatch, what
):
    monkeypatch.setattr(threaded, "_VOICE_SECONDS", 0.01)
    heard = hear(
        f"{what} has waited",
        "for the thread 'thinker', which has been busy with group 0",
        then=groups[0].may_answer.release,
    )
    ticket = stream.request(0, "zero")
    assert groups[0].began.wait(30)
    with heard as said:
        stream.refresh(4) if what == "A refresh" else stream.reset(1)
    assert said.is_set() and stream.result(ticket, 30).action == "zero"
    assert groups[1].refreshed == ([(4, 0, False)] if what == "A refresh" else [])
