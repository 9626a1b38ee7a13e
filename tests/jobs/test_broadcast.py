"""What the learner tells the others: how often, and in how many messages."""

import types

import pytest
import tensorflow as tf

from actor_learner.jobs import broadcast as broadcast_lib


class _Publisher:
    """Notes what is handed over, in the order in which it is."""

    version = 0

    def __init__(self, *_, **__):
        self.taken = []

    def publish(self, version, with_next=False):
        self.taken.append(("variables", version, with_next))

    def announce(self, announcement):
        self.taken.append(("announcement", announcement.train_step))


@pytest.fixture
def learner(monkeypatch):
    clock = types.SimpleNamespace(now=1000.0, monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr(broadcast_lib, "time", clock)
    monkeypatch.setattr(broadcast_lib.publisher, "Publisher", _Publisher)
    model = types.SimpleNamespace(
        published_variables=list,
        plan=types.SimpleNamespace(publish_seconds=0.5),
        train_step=tf.Variable(0, dtype=tf.int64),
        environment_step=tf.Variable(0, dtype=tf.int64),
    )
    partner = types.SimpleNamespace(address="", run_id="a" * 32, require_same_run=None)
    made = broadcast_lib.Broadcast(
        partner,
        model,
        lambda: (int(model.environment_step.numpy()), int(model.train_step.numpy())),
        counted=dict,
        limit=None,
    )

    def tell(after, train_step):
        """What is handed over by a learner that has trained for some seconds."""
        clock.now += after
        model.train_step.assign(train_step)
        made._publisher.taken.clear()
        made.publish()
        made.announce(steps_allowed=10)
        return made._publisher.taken

    return types.SimpleNamespace(tell=tell, taken=made._publisher.taken)


def test_the_first_policy_is_published_at_once(learner):
    assert learner.taken == [("variables", 0, False)]


def test_a_publication_goes_with_an_announcement_however_short_ago_the_last_was(learner):
    assert learner.tell(0.49, 1) == [("announcement", 1)]
    assert learner.tell(0.02, 2) == [("variables", 2, True), ("announcement", 2)]
    assert learner.tell(0.02, 3) == []
    assert learner.tell(0.05, 3) == [("announcement", 3)]


def test_what_has_not_changed_is_announced_once_per_second_only(learner):
    assert learner.tell(0.1, 0) == [("announcement", 0)]
    assert learner.tell(0.9, 0) == []
    assert learner.tell(0.2, 0) == [("announcement", 0)]
    assert learner.tell(0.1, 1)[-1] == ("announcement", 1)


def test_a_policy_that_has_not_changed_is_published_every_few_seconds(learner):
    assert learner.tell(4.0, 0) == [("announcement", 0)]
    assert learner.tell(1.5, 0) == [("variables", 0, True), ("announcement", 0)]
