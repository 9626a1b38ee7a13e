"""Learners that draw from one queue: each unroll once, none before all of them have begun."""

import contextlib
import threading
import time
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.jobs.exchange import learner_group
from actor_learner.jobs.workers import shared_queue
from actor_learner.messaging import client, server
from actor_learner.parameters import packing
from actor_learner.replay.reading import version_limit

SECONDS = 60.0
PART_SECONDS = 5.0  # Several times as long as the pause between two messages.


class Learner:
    """One of two learners; its train steps take items out of a list that both share."""

    def __init__(self, group, items, part_items=2, max_lag=None):
        self.group, self.items, self.part_items = group, items, part_items
        self.limit = None
        if max_lag is not None:
            self.limit = version_limit.VersionLimit(tf.Variable(0, dtype=tf.int64), max_lag)
        self.learned = []
        self.while_training = lambda: None
        self.queue = shared_queue.SharedQueue(
            group, self.train, part_items=part_items, limit=self.limit
        )

    def train(self, iterations):
        assert iterations == 1
        taken = [self.items.pop(0) for _ in range(self.part_items)]
        self.while_training()
        self.group.sum(np.ones(1, np.float32))
        self.learned += taken


@pytest.fixture
def closing():
    with contextlib.ExitStack() as stack:
        yield stack


class Pair:
    def __init__(self, closing, part_seconds=SECONDS, **options):
        # Ended last: what waits for the wire ends with that.
        self.threads = closing.enter_context(futures.ThreadPoolExecutor(3))
        wire = closing.enter_context(server.Server({}))
        chief = learner_group.ChiefGroup(wire, epoch=1, part_seconds=part_seconds)
        to_chief = closing.enter_context(client.Client(wire.address, who="learner-1"))
        packed = packing.Packing([tf.Variable(0.0)])
        member = learner_group.MemberGroup(to_chief, lambda: packed)
        self.items = list(range(100))
        self.chief = Learner(chief, self.items, **options)
        self.member = Learner(member, self.items, **options)
        self.packed = packed
        self.join()

    def join(self):
        joined = self.threads.submit(self.member.group.join, SECONDS)
        while not joined.done():
            self.chief.group.admit(lambda: self.packed)
        assert joined.result()

    def run(self, learner, iterations):
        return self.threads.submit(learner.queue.run, iterations)


def test_each_item_is_learned_from_once_and_none_is_taken_out_before_its_train_step(closing):
    pair = Pair(closing)
    seen = []
    pair.chief.while_training = lambda: seen.append(pair.chief.queue.in_training())
    further = pair.run(pair.member, 1_000)
    assert pair.chief.queue.items_per_batch() == 4
    for number in range(1, 4):
        # The member has begun, but waits for the chief.
        assert len(pair.items) == 100 - 4 * (number - 1)
        assert pair.chief.queue.in_training() == 0
        pair.run(pair.chief, 1).result(SECONDS)
        assert seen == [1] * number
    assert pair.chief.queue.lost == 0
    pair.chief.group.abandon()
    with pytest.raises(learner_group.LeftGroupError):
        further.result(SECONDS)
    assert sorted(pair.chief.learned + pair.member.learned) == list(range(12))
    assert len(pair.chief.learned) == len(pair.member.learned) == 6


def test_what_a_learner_had_taken_out_when_it_died_is_counted_as_lost(closing):
    pair = Pair(closing, part_seconds=0.1)
    dead = threading.Event()
    pair.member.while_training = lambda: dead.wait(SECONDS)
    died = pair.run(pair.member, 1)
    pair.run(pair.chief, 1).result(SECONDS)
    assert pair.chief.queue.lost == 2 and pair.chief.queue.items_per_batch() == 2
    pair.run(pair.chief, 2).result(SECONDS)  # Alone, on smaller batches.
    assert pair.chief.queue.lost == 2 and len(pair.chief.learned) == 6
    dead.set()
    with pytest.raises(learner_group.LeftGroupError):
        died.result(SECONDS)
    assert not pair.member.learned
    pair.member.while_training = lambda: None
    pair.join()
    both = [pair.run(learner, 1) for learner in (pair.chief, pair.member)]
    for one in both:
        one.result(SECONDS)
    assert len(pair.chief.learned + pair.member.learned) + pair.chief.queue.lost == 12
    assert pair.items == list(range(12, 100))


def test_a_learner_that_waits_for_experience_is_not_late(closing):
    pair = Pair(closing, part_seconds=PART_SECONDS)
    enough = threading.Event()
    chief_waits = threading.Event()
    pair.member.while_training = lambda: enough.wait(SECONDS)
    pair.chief.while_training = chief_waits.set
    both = [pair.run(learner, 1) for learner in (pair.chief, pair.member)]
    assert chief_waits.wait(SECONDS)
    begun = time.monotonic()
    while time.monotonic() - begun < 3 * PART_SECONDS:
        pair.member.group.tell_drawing()
        time.sleep(0.01)
    assert pair.chief.group.size == 2
    enough.set()
    for one in both:
        one.result(SECONDS)
    assert pair.chief.queue.lost == 0 and pair.chief.group.size == 2
    before = pair.member.group._told_at
    pair.member.group.tell_drawing()  # No train step has begun.
    assert pair.member.group._told_at == before


def test_the_chief_counts_what_all_have_dropped(closing):
    pair = Pair(closing, max_lag=0)

    def drop(learner, count):
        return lambda: [learner.limit.accepts(tf.constant(-1, tf.int64)) for _ in range(count)]

    pair.chief.while_training = drop(pair.chief, 1)
    pair.member.while_training = drop(pair.member, 2)
    for _ in range(3):
        both = [pair.run(learner, 1) for learner in (pair.chief, pair.member)]
        for one in both:
            one.result(SECONDS)
    # What was dropped for the last train step is told at the next one.
    assert pair.member.limit.dropped == 6
    assert pair.chief.limit.dropped == 3 + 4
