"""Train steps that can be waited for no longer than one wants to."""

import threading

import pytest

from actor_learner.runs import train_thread


def wait(seconds):
    """Waits on."""


def test_train_steps_are_taken_one_call_after_the_other():
    taken = []
    thread = train_thread.TrainThread(taken.append)
    for iterations in (3, 1, 4):
        thread.run(iterations, wait)
    assert taken == [3, 1, 4]
    thread.close()


def test_what_training_raises_is_raised_to_whoever_waits_and_training_can_go_on():
    def train(iterations):
        if iterations == 13:
            raise RuntimeError("no sample came")

    thread = train_thread.TrainThread(train)
    with pytest.raises(RuntimeError, match="no sample came"):
        thread.run(13, wait)
    thread.run(12, wait)
    thread.close()


def test_whoever_waits_may_give_up_on_steps_that_never_end():
    stuck = threading.Event()
    thread = train_thread.TrainThread(lambda iterations: stuck.wait(60))
    waited = []

    def give_up(seconds):
        waited.append(seconds)
        if len(waited) == 2:
            raise TimeoutError("the server is gone")

    with pytest.raises(TimeoutError, match="the server is gone"):
        thread.run(1, give_up)
    assert waited == pytest.approx([0.1, 0.2])
    stuck.set()
    thread.close()
